"""Brings a stored branch back from its manifest: verified first, placed afterwards.

A manifest of another K/V format is converted, block by block, into this memory's own.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.config import BLOCK_SIZES
from engine.errors import SnapshotError
from engine.memory.attaching import Attacher, Brought
from engine.memory.codec import BlockLayout, exact_codec
from engine.memory.converting import Converter
from engine.memory.interface import Match
from engine.memory.packing import write_planes
from engine.memory.prefix_index import TOKEN_BYTES, chain_hashes, chain_salt
from engine.memory.sequence import from_bytes
from engine.memory.snapshot import tail_planes, unpack_body

if TYPE_CHECKING:
    from engine.config import KVCodec
    from engine.memory.cold_reader import ColdReader
    from engine.memory.groups import Groups
    from engine.memory.interface import MemorySpec
    from engine.memory.sequence import Sequence
    from engine.memory.snapshot import ManifestBody
    from engine.memory.storage import Manifest


class Restorer:
    """Turns a manifest into a sequence of one memory."""

    def __init__(
        self, spec: MemorySpec, codec: KVCodec, groups: Groups, reader: ColdReader
    ) -> None:
        self._spec = spec
        self._codec = codec
        self._groups = groups
        self._reader = reader

    def run(self, manifest: Manifest) -> tuple[Sequence, bytes, Match]:
        """Return the longest sequence that could be verified, the session's log, and the match.

        Raises: SnapshotError when the manifest is damaged or of another model.
        """
        started = time.perf_counter()
        body = self._verified(manifest)
        found = self._groups.new_sequence(body.prefix)
        if body.codec == self._codec and body.block_size == self._groups.block_size:
            brought = self._place(found, body)
        else:
            Converter(self._spec, self._groups, self._reader).run(found, body)
            found = self._reachable(found)
            brought = Brought(cold=found.length)
        self._groups.drop_part_of_prefix(found)
        # What was thinned out counts with what is there.
        num_cold = found.num_tokens if brought.cold >= found.length else brought.cold
        num_warm = min(brought.warm, found.num_tokens - num_cold)
        match = Match(
            hot=found.num_tokens - num_warm - num_cold,
            warm=num_warm,
            cold=num_cold,
            restore_ms=(time.perf_counter() - started) * 1e3,
            damaged=self._reader.take_damaged(),
        )
        return found, body.log, match

    def _reachable(self, found: Sequence) -> Sequence:
        """Return what was converted, as far as every window of it is there."""
        if self._groups.is_reachable(found, found.length):
            return found
        shorter = self._groups.new_sequence(found.prefix)
        shorter.num_pinned = found.num_pinned
        Attacher(self._groups, self._reader).extend(shorter, found.token_bytes(0, found.length))
        self._groups.cut(found, 0)
        return shorter

    def _verified(self, manifest: Manifest) -> ManifestBody:
        """Check a manifest against itself and against this model."""
        if manifest.fingerprint != self._spec.fingerprint:
            raise _unusable("it belongs to another model")
        body = unpack_body(manifest.body)
        if body.block_size not in BLOCK_SIZES or body.num_tokens != manifest.num_tokens:
            raise _unusable("its sizes contradict each other")
        if len(body.hashes) != len(self._spec.groups) or len(body.tails) != len(body.hashes):
            raise _unusable("its layer groups differ")
        if body.num_tail_tokens < 0 or len(set(map(len, body.hashes))) != 1:
            raise _unusable("its groups differ in length")
        for index in range(len(body.hashes)):
            self._verify_group(body, index)
        return body

    def _verify_group(self, body: ManifestBody, index: int) -> None:
        salt = chain_salt(self._spec.fingerprint, body.codec, body.block_size, index)
        hashes = body.hashes[index]
        settled = body.token_ids[: len(hashes) * body.block_size * TOKEN_BYTES]
        if tuple(chain_hashes(settled, body.block_size, salt, parent=body.root)) != hashes:
            raise _unusable("its block hashes do not follow from its tokens")
        codec = exact_codec(body.codec)
        layout = BlockLayout.of(self._spec.groups[index], codec, body.block_size)
        if len(body.tails[index]) != layout.bytes_of_tokens(body.num_tail_tokens):
            raise _unusable("its tail has the wrong size")

    def _place(self, found: Sequence, body: ManifestBody) -> Brought:
        """Put blocks and tail in place; return how many tokens came from where."""
        num_settled = body.num_places - body.num_tail_tokens
        settled = body.token_ids[: num_settled * TOKEN_BYTES]
        found.num_pinned = body.num_pinned
        brought = Attacher(self._groups, self._reader).extend(found, settled, body.hashes)
        if found.length < num_settled or body.num_tail_tokens == 0:
            return brought
        if not self._groups.reserve([(found, body.num_places)]):
            return brought
        for table, tail in zip(found.tables, body.tails, strict=True):
            blocks = table.span(len(table.hashes), table.num_blocks)
            parts = tail_planes(tail, table.memory.pool.layout, body.num_tail_tokens)
            for block, planes in zip(blocks, parts, strict=True):
                write_planes(block, planes)
        found.token_ids.extend(from_bytes(body.token_ids)[num_settled:])
        self._groups.seal_full(found)
        return replace(brought, cold=brought.cold + body.num_tail_tokens)


def _unusable(why: str) -> SnapshotError:
    return SnapshotError("The stored state of this conversation cannot be used.", detail=why)
