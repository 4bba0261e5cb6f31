"""What is written so that a sequence can resume, and the format it is written in.

A manifest body is ``magic (4) | header length u32 | crc32 u32 | header | sections``, little-endian.
The crc covers header and sections. The header is JSON and names the length of every section:
token ids (int32), block hashes (16 bytes each, group by group), the tail of each group, recurrent
states, tokens of a thinned-out beginning, the session's log. The tail is what is not in blocks of
their final codec yet: always exact, block after block, plane after plane, each
[layer][head][token][width] without padding. No SQL here.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from engine.config import KVCodec
from engine.errors import SnapshotError, StoreError
from engine.kernels.checksum import crc32
from engine.memory.packing import bytes_of
from engine.memory.prefix_index import HASH_BYTES, ROOT, TOKEN_BYTES
from engine.memory.sequence import Prefix, from_bytes, to_bytes
from engine.memory.storage import Manifest, NewBlock, SnapshotJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence as SequenceOf
    from collections.abc import Set as AbstractSet

    import numpy.typing as npt
    from torch import Tensor

    from engine.memory.block_pool import Block
    from engine.memory.codec import BlockLayout
    from engine.memory.sequence import Sequence
    from engine.memory.storage import ColdStore
    from engine.memory.stored_states import StateBlock

MAGIC = b"RPM1"
_PREFIX = struct.Struct("<4sII")


@dataclass(frozen=True, slots=True)
class ManifestBody:
    """The verified content of a manifest.

    token_ids: int32 little-endian, one per place in the blocks. hashes: of the settled blocks, per
    group. tails: per group, the numbers of the tokens after those; parts of the body that they were
    read from. num_pinned: leading tokens that stay exact. states: recurrent ones, as
    engine/memory/checkpoints.py packs them. prefix: of a thinned-out branch.
    """

    codec: KVCodec
    block_size: int
    token_ids: bytes
    hashes: tuple[tuple[bytes, ...], ...]
    tails: tuple[bytes | memoryview, ...]
    log: bytes
    num_pinned: int = 0
    states: bytes = b""
    prefix: Prefix | None = None

    @property
    def num_places(self) -> int:
        """Places in the blocks."""
        return len(self.token_ids) // TOKEN_BYTES

    @property
    def num_tokens(self) -> int:
        """Tokens of the whole branch."""
        return self.num_places + (0 if self.prefix is None else self.prefix.num_dropped)

    @property
    def root(self) -> bytes:
        """Parent of the first blocks."""
        return ROOT if self.prefix is None else self.prefix.root

    @property
    def num_tail_tokens(self) -> int:
        """Tokens after the last settled block."""
        if not self.hashes:
            return 0
        return self.num_places - len(self.hashes[0]) * self.block_size

    def pack(self) -> bytes:
        """Return the body as bytes."""
        header = json.dumps(
            {
                "codec": self.codec.value,
                "block_size": self.block_size,
                "token_bytes": len(self.token_ids),
                "hashes": [len(hashes) for hashes in self.hashes],
                "tail_bytes": [len(tail) for tail in self.tails],
                "state_bytes": len(self.states),
                "log_bytes": len(self.log),
                "pinned": self.num_pinned,
                "prefix": None if self.prefix is None else _prefix_header(self.prefix),
            }
        ).encode()
        prefix = b"" if self.prefix is None else to_bytes(self.prefix.token_ids)
        hashes = b"".join(h for group in self.hashes for h in group)
        content = b"".join(
            (header, self.token_ids, hashes, *self.tails, self.states, prefix, self.log)
        )
        return _PREFIX.pack(MAGIC, len(header), crc32(content)) + content


def _prefix_header(prefix: Prefix) -> dict[str, Any]:
    return {
        "root": prefix.root.hex(),
        "cells": prefix.num_cells,
        "bytes": len(prefix.token_ids) * TOKEN_BYTES,
    }


def _prefix_from(header: dict[str, Any] | None, data: bytes) -> Prefix | None:
    """Read a prefix. Raises: ValueError when its sizes contradict each other."""
    if header is None:
        return None
    prefix = Prefix(from_bytes(data), header["cells"], bytes.fromhex(header["root"]))
    if len(prefix.root) != HASH_BYTES or not 0 < prefix.num_cells <= len(prefix.token_ids):
        raise ValueError("its thinned-out part has impossible sizes")
    return prefix


def unpack_body(body: bytes) -> ManifestBody:
    """Verify and read a manifest body.

    Raises: SnapshotError when it is damaged, truncated or of another version.
    """
    if len(body) < _PREFIX.size or not body.startswith(MAGIC):
        raise _unusable("its format is unknown")
    _, header_bytes, crc = _PREFIX.unpack_from(body)
    if crc32(body, _PREFIX.size) != crc:
        raise _unusable("its checksum differs")
    content = memoryview(body)[_PREFIX.size :]
    try:
        header = json.loads(bytes(content[:header_bytes]))
        parsed = _from_sections(header, content[header_bytes:])
    except (ValueError, KeyError, TypeError) as error:
        raise _unusable(str(error)) from error
    return parsed


def _checksum(packed: bytes) -> int:
    """Return the checksum in a packed body."""
    checksum: int = _PREFIX.unpack_from(packed)[2]
    return checksum


def session_log(manifest: Manifest) -> bytes:
    """Return the session's own record of a manifest.

    Raises: SnapshotError when the manifest is damaged or of another version.
    """
    return unpack_body(manifest.body).log


def _unusable(why: str) -> SnapshotError:
    return SnapshotError("The stored state of this conversation cannot be used.", detail=why)


def _from_sections(header: dict[str, Any], data: memoryview) -> ManifestBody:
    """Cut the sections that the header names out of data; they must fill it exactly."""
    lengths = [
        header["token_bytes"],
        *(count * HASH_BYTES for count in header["hashes"]),
        *header["tail_bytes"],
        header["state_bytes"],
        0 if header["prefix"] is None else header["prefix"]["bytes"],
        header["log_bytes"],
    ]
    if any(length < 0 for length in lengths) or sum(lengths) != len(data):
        raise ValueError("its sections do not fill it")
    ends = list(accumulate(lengths, initial=0))
    sections = [data[start:end] for start, end in pairwise(ends)]
    num_groups = len(header["hashes"])
    return ManifestBody(
        codec=KVCodec(header["codec"]),
        block_size=header["block_size"],
        token_ids=bytes(sections[0]),
        hashes=tuple(_split(bytes(section)) for section in sections[1 : 1 + num_groups]),
        tails=tuple(sections[1 + num_groups : -3]),
        log=bytes(sections[-1]),
        num_pinned=header["pinned"],
        states=bytes(sections[-3]),
        prefix=_prefix_from(header["prefix"], bytes(sections[-2])),
    )


def _split(section: bytes) -> tuple[bytes, ...]:
    return tuple(section[at : at + HASH_BYTES] for at in range(0, len(section), HASH_BYTES))


def read_tail(blocks: SequenceOf[Block], num_tokens: int) -> bytes:
    """Return the numbers of the first num_tokens tokens of some exact blocks."""
    parts: list[bytes] = []
    for block in blocks:
        count = min(num_tokens, block.layout.block_size)
        num_tokens -= count
        for planes in zip(*(one.whole_planes for one in block.arena.sections), strict=True):
            for plane in planes:
                parts.append(bytes_of(plane[block.slot][:, :, :count].cpu()).tobytes())
    assert num_tokens == 0
    return b"".join(parts)


def tail_planes(
    tail: bytes | memoryview, layout: BlockLayout, num_tokens: int
) -> Iterator[list[npt.NDArray[np.uint8]]]:
    """Yield the planes of each block of a tail, one of the right size, without a copy.

    Each (L, K, tokens, bytes), read-only.
    """
    raw = np.frombuffer(tail, dtype=np.uint8)
    at = 0
    while num_tokens:
        count = min(num_tokens, layout.block_size)
        num_tokens -= count
        planes: list[npt.NDArray[np.uint8]] = []
        for plane in layout.planes:
            num_heads, _, width = plane.shape
            shape = (layout.num_layers, num_heads, count, width * plane.dtype.itemsize)
            num_bytes = math.prod(shape)
            planes.append(raw[at : at + num_bytes].reshape(shape))
            at += num_bytes
        yield planes


def tail_numbers(
    tail: bytes | memoryview, layout: BlockLayout, num_tokens: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield keys and values (L, K, tokens, D) of each block of a tail, one of the right size."""
    dtype = layout.planes[0].dtype
    for keys, values in tail_planes(tail, layout, num_tokens):
        yield torch.from_numpy(keys.copy()).view(dtype), torch.from_numpy(values.copy()).view(dtype)


class SnapshotWriter:
    """Turns sequences into jobs that hold only what the store lacks.

    Blocks being written stay in memory until the writer thread has reported; its report is only
    queued, and taken in by ``collect`` on the engine thread.
    """

    def __init__(self, store: ColdStore | None, fingerprint: bytes) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._reports: SimpleQueue[tuple[_Pending, bool]] = SimpleQueue()
        self._in_flight: set[bytes] = set()
        self._written: dict[tuple[str, str], int] = {}

    def job(
        self,
        sequence: Sequence,
        body: ManifestBody,
        kept: SequenceOf[SequenceOf[int]],
        conversation_id: str,
        branch: str,
        *,
        states: SequenceOf[StateBlock] = (),
    ) -> SnapshotJob | None:
        """Return what must be written for this state; None when the store has it all.

        kept: per group, which of the body's blocks the store shall have. states: recurrent ones
        that the body names by their positions.
        """
        if self._store is None:
            return None
        self.collect()
        packed = body.pack()
        wanted = [
            [(at, group[at]) for at in of] for group, of in zip(body.hashes, kept, strict=True)
        ]
        names = (*(h for group in wanted for _, h in group), *(state.hash for state in states))
        present = self._existing(names) | self._in_flight
        blocks = _missing(sequence, wanted, present)
        new_states = [state for state in states if state.hash not in present]
        key = (conversation_id, branch)
        state = _checksum(packed)
        if not blocks and not new_states and self._written.get(key) == state:
            return None
        self._written[key] = state
        pending = _Pending(key, state, blocks, [state.hash for state in new_states])
        self._start(pending)
        manifest = Manifest(
            conversation_id, branch, self._fingerprint, body.num_tokens, names, packed
        )
        offered = (*map(_offered, blocks), *(state.offered() for state in new_states))
        return SnapshotJob(manifest, offered, lambda written: self._reports.put((pending, written)))

    def collect(self) -> None:
        """Take in what the writer thread has reported."""
        while not self._reports.empty():
            pending, is_written = self._reports.get()
            for block in reversed(pending.blocks):
                assert block.hash is not None
                self._in_flight.discard(block.hash)
                block.pool.stop_reading(block)
            self._in_flight.difference_update(pending.state_hashes)
            if not is_written:
                # Other branches may have counted on these blocks.
                self._written.clear()

    def _existing(self, names: SequenceOf[bytes]) -> frozenset[bytes]:
        """Return those that are stored; none where the store cannot tell."""
        assert self._store is not None
        try:
            return self._store.kept(self._fingerprint, names)
        except StoreError:
            return frozenset()

    def _start(self, pending: _Pending) -> None:
        for block in pending.blocks:
            assert block.hash is not None
            block.pool.start_reading(block)
            self._in_flight.add(block.hash)
        self._in_flight.update(pending.state_hashes)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A job on its way: the branch, the state it writes and the blocks it reads."""

    key: tuple[str, str]
    state: int
    blocks: list[Block]
    state_hashes: list[bytes]


def _missing(
    sequence: Sequence,
    wanted: SequenceOf[SequenceOf[tuple[int, bytes]]],
    present: AbstractSet[bytes],
) -> list[Block]:
    """Return those of the wanted blocks of a sequence that are not among those present.

    wanted: per group, places and hashes of settled blocks. Those that have left a window are there
    as long as they can be found in hot memory.
    """
    found = [
        table.block(at) if at >= table.num_given_up else table.memory.find(block_hash)
        for table, blocks in zip(sequence.tables, wanted, strict=True)
        for at, block_hash in blocks
        if block_hash not in present
    ]
    return [block for block in found if block is not None]


def _offered(block: Block) -> NewBlock:
    assert block.hash is not None
    return NewBlock(
        hash=block.hash,
        parent=block.parent,
        token_ids=block.token_ids,
        codec=block.layout.codec.value,
        payload=block.payload(),
    )
