"""Brings a stored branch back from its manifest: verified first, placed afterwards.

A manifest of another K/V format is converted, block by block, into this memory's own.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from engine.errors import SnapshotError
from engine.memory.attaching import Attacher
from engine.memory.codec import BlockLayout
from engine.memory.converting import Converter
from engine.memory.interface import Match
from engine.memory.prefix_index import chain_hashes, chain_salt
from engine.memory.sequence import from_bytes
from engine.memory.snapshot import unpack_body, write_tail

if TYPE_CHECKING:
    from engine.config import KVCodec
    from engine.memory.cold_reader import ColdReader
    from engine.memory.groups import Groups
    from engine.memory.interface import Manifest, MemorySpec
    from engine.memory.sequence import Sequence
    from engine.memory.snapshot import ManifestBody

_BLOCK_SIZES = (16, 32, 64, 128)


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
        found = self._groups.new_sequence()
        if body.codec == self._codec and body.block_size == self._groups.block_size:
            num_cold = self._place(found, body)
        else:
            num_cold = Converter(self._spec, self._groups, self._reader).run(found, body)
        match = Match(
            hot=found.length - num_cold,
            cold=num_cold,
            restore_ms=(time.perf_counter() - started) * 1e3,
            damaged=self._reader.take_damaged(),
        )
        return found, body.log, match

    def _verified(self, manifest: Manifest) -> ManifestBody:
        """Check a manifest against itself and against this model."""
        if manifest.fingerprint != self._spec.fingerprint:
            raise _unusable("it belongs to another model")
        body = unpack_body(manifest.body)
        if body.block_size not in _BLOCK_SIZES or body.num_tokens != manifest.num_tokens:
            raise _unusable("its sizes contradict each other")
        if len(body.hashes) != len(self._spec.groups) or len(body.tails) != len(body.hashes):
            raise _unusable("its layer groups differ")
        layouts = [BlockLayout.of(g, body.codec, body.block_size) for g in self._spec.groups]
        for index, (layout, hashes, tail) in enumerate(
            zip(layouts, body.hashes, body.tails, strict=True)
        ):
            salt = chain_salt(self._spec.fingerprint, body.codec, body.block_size, index)
            if tuple(chain_hashes(body.token_ids, body.block_size, salt)) != hashes:
                raise _unusable("its block hashes do not follow from its tokens")
            if len(tail) != layout.bytes_of_tokens(body.num_tail_tokens):
                raise _unusable("its open tail has the wrong size")
        return body

    def _place(self, found: Sequence, body: ManifestBody) -> int:
        """Put blocks and tail in place; return how many tokens came from the store."""
        num_cold = Attacher(self._groups, self._reader).extend(found, body.token_ids)
        num_full = body.num_tokens - body.num_tail_tokens
        if found.length < num_full or body.num_tail_tokens == 0:
            return num_cold
        if not self._groups.reserve([(found, body.num_tokens)]):
            return num_cold
        for table, tail in zip(found.tables, body.tails, strict=True):
            write_tail(table.blocks[-1], tail, body.num_tail_tokens)
        found.token_ids.extend(from_bytes(body.token_ids)[num_full:])
        return num_cold + body.num_tail_tokens


def _unusable(why: str) -> SnapshotError:
    return SnapshotError("The stored state of this conversation cannot be used.", detail=why)
