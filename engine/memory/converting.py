"""Turns stored blocks of one K/V format into blocks of another: other codec, other block size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.memory.block_pool import Arena, Block
from engine.memory.codec import BlockLayout
from engine.memory.cold_reader import Wanted, fill
from engine.memory.prefix_index import ROOT, TOKEN_BYTES, chain_salt
from engine.memory.sequence import from_bytes
from engine.memory.snapshot import write_tail

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Sequence as SequenceOf

    from torch import Tensor

    from engine.memory.cold_reader import ColdReader
    from engine.memory.groups import Groups
    from engine.memory.interface import MemorySpec
    from engine.memory.sequence import BlockTable, Sequence
    from engine.memory.snapshot import ManifestBody


class Converter:
    """Reads a manifest's blocks in their own format and writes their numbers into ours."""

    def __init__(self, spec: MemorySpec, groups: Groups, reader: ColdReader) -> None:
        self._spec = spec
        self._groups = groups
        self._reader = reader

    def run(self, found: Sequence, body: ManifestBody) -> int:
        """Fill an empty sequence as far as blocks are sound and room lasts; return its length."""
        stagings = [_Staging(self._spec, body, index) for index in range(len(body.hashes))]
        streams = zip(*(staging.chunks(self._reader) for staging in stagings), strict=False)
        token_ids = from_bytes(body.token_ids)
        for chunks in streams:
            num_tokens = chunks[0][0].shape[2]
            if not self._groups.reserve([(found, found.length + num_tokens)]):
                break
            for table, (keys, values) in zip(found.tables, chunks, strict=True):
                _write(table, found.length, keys, values)
            found.token_ids.extend(token_ids[found.length : found.length + num_tokens])
            self._groups.seal_full(found)
        return found.length


class _Staging:
    """A block of the foreign format, filled again and again."""

    def __init__(self, spec: MemorySpec, body: ManifestBody, index: int) -> None:
        self._body = body
        self._index = index
        self._layout = BlockLayout.of(spec.groups[index], body.codec, body.block_size)
        self._salt = chain_salt(spec.fingerprint, body.codec, body.block_size, index)
        arena = Arena(self._layout, 1, torch.device("cpu"))
        self._block = Block(arena, 0, arena.raw.data_ptr())

    def chunks(self, reader: ColdReader) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield keys and values (L, K, tokens, D) of one block after another, then of the tail."""
        num_sound = 0
        wanted = self._wanted()
        for stored in reader.sound_blocks(wanted, self._layout, self._salt):
            num_sound += 1
            fill(self._block, stored.payload)
            yield self._numbers(self._body.block_size)
        num_tail = self._body.num_tail_tokens
        if num_sound == len(wanted) and num_tail:
            write_tail(self._block, self._body.tails[self._index], num_tail)
            yield self._numbers(num_tail)

    def _numbers(self, num_tokens: int) -> tuple[Tensor, Tensor]:
        keys, values = (plane[0][:, :, :num_tokens] for plane in self._block.arena.whole_planes)
        return keys, values

    def _wanted(self) -> SequenceOf[Wanted]:
        hashes = self._body.hashes[self._index]
        step = self._body.block_size * TOKEN_BYTES
        return [
            Wanted(
                block_hash,
                hashes[at - 1] if at else ROOT,
                self._body.token_ids[at * step : (at + 1) * step],
            )
            for at, block_hash in enumerate(hashes)
        ]


def _write(table: BlockTable, position: int, keys: Tensor, values: Tensor) -> None:
    """Write keys and values (L, K, tokens, D) at position.. of a table that has room."""
    size = table.memory.pool.layout.block_size
    num_tokens = keys.shape[2]
    done = 0
    while done < num_tokens:
        at, offset = divmod(position + done, size)
        count = min(size - offset, num_tokens - done)
        block = table.blocks[at]
        for plane, source in zip(block.arena.whole_planes, (keys, values), strict=True):
            plane[block.slot][:, :, offset : offset + count] = source[:, :, done : done + count]
        done += count
