"""Turns stored blocks of one K/V format into blocks of another: other codec, other block size.

Of layers that see a window only parts are stored. What lies between them is given up in the other
format too; blocks before such a gap can still be found by their content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.memory.block_pool import BlockPool, ByteBudget
from engine.memory.codec import BlockLayout, exact_codec
from engine.memory.cold_reader import Wanted
from engine.memory.packing import numbers_of, write_numbers
from engine.memory.prefix_index import TOKEN_BYTES, chain_hash
from engine.memory.quantize import Rotation, rotate
from engine.memory.sequence import from_bytes
from engine.memory.snapshot import tail_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Sequence as SequenceOf

    from torch import Tensor

    from engine.memory.block_pool import Block
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
        """Fill an empty sequence as far as blocks are sound and room lasts; return its length.

        It may end where not all of a window was stored: what is reachable is for the caller.
        """
        size = self._groups.block_size
        stagings = [_Staging(self._spec, body, index) for index in range(len(body.hashes))]
        streams = [_cut_anew(staging.chunks(self._reader), size) for staging in stagings]
        found.num_pinned = body.num_pinned
        for chunks in zip(*streams, strict=False):
            num_tokens = min(size, body.num_places - found.length)
            is_whole = all(chunk.num_tokens == num_tokens for chunk in chunks)
            if not is_whole or not self._append(found, body, chunks):
                break
        return found.length

    def _append(self, found: Sequence, body: ManifestBody, chunks: SequenceOf[_Chunk]) -> bool:
        """Append one block, or the tail, to every table; False, and no change, without room."""
        start, size = found.length, self._groups.block_size
        end = start + chunks[0].num_tokens
        pairs = list(zip(found.tables, chunks, strict=True))
        filled = [(table, chunk.numbers) for table, chunk in pairs if chunk.numbers is not None]
        is_gap_full = len(filled) == len(pairs) or end - start == size
        num_blocks = self._groups.num_blocks(end)
        if not is_gap_full or not all(table.reserve(num_blocks) for table, _ in filled):
            self._groups.cut(found, start)
            return False
        ids = body.token_ids[start * TOKEN_BYTES : end * TOKEN_BYTES]
        for table, chunk in pairs:
            if chunk.numbers is None:
                table.append_given_up(chain_hash(table.tip(start // size), ids, table.memory.salt))
        for table, (keys, values) in filled:
            _write(table, keys, values)
        found.token_ids.extend(from_bytes(ids))
        found.num_reserved = found.length
        self._groups.seal_full(found)
        return True


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Keys and values (L, K, tokens, D) of neighbouring tokens; None where they are not stored."""

    num_tokens: int
    numbers: tuple[Tensor, Tensor] | None

    def part(self, start: int, end: int) -> _Chunk:
        """Return some of the tokens."""
        if self.numbers is None:
            return _Chunk(end - start, None)
        keys, values = self.numbers
        return _Chunk(end - start, (keys[:, :, start:end], values[:, :, start:end]))


def _cut_anew(chunks: Iterable[_Chunk], size: int) -> Iterator[_Chunk]:
    """Yield the same tokens in chunks of ``size``; the last one may be shorter."""
    held: list[_Chunk] = []
    num_held = 0
    for chunk in chunks:
        done = 0
        while done < chunk.num_tokens:
            count = min(size - num_held, chunk.num_tokens - done)
            held.append(chunk.part(done, done + count))
            done, num_held = done + count, num_held + count
            if num_held == size:
                yield _joined(held)
                held, num_held = [], 0
    if held:
        yield _joined(held)


def _joined(chunks: SequenceOf[_Chunk]) -> _Chunk:
    """Return neighbouring chunks as one; it is not stored where a part of it is not."""
    num_tokens = sum(chunk.num_tokens for chunk in chunks)
    parts = [chunk.numbers for chunk in chunks if chunk.numbers is not None]
    if len(parts) < len(chunks):
        return _Chunk(num_tokens, None)
    keys, values = (torch.cat(kind, dim=2) for kind in zip(*parts, strict=True))
    return _Chunk(num_tokens, (keys, values))


class _Staging:
    """Blocks of the foreign format, one per codec, filled again and again."""

    def __init__(self, spec: MemorySpec, body: ManifestBody, index: int) -> None:
        self._body = body
        self._index = index
        group = spec.groups[index]
        self._has_window = group.window is not None
        self._layouts = {
            codec.value: BlockLayout.of(group, codec, body.block_size)
            for codec in (exact_codec(body.codec), body.codec)
        }
        self._blocks = {codec: _single(layout) for codec, layout in self._layouts.items()}
        self._rotation = Rotation.of(body.codec, group.head_dim)

    def chunks(self, reader: ColdReader) -> Iterator[_Chunk]:
        """Yield one block after another, then the tail; end at the first that is not sound."""
        wanted = self._wanted()
        stored = reader.existing([one.hash for one in wanted]) if self._has_window else None
        there = [one for one in wanted if stored is None or one.hash in stored]
        sound = reader.sound_blocks(there, self._layouts)
        for one in wanted:
            if stored is not None and one.hash not in stored:
                yield _Chunk(self._body.block_size, None)
                continue
            found = next(sound, None)
            if found is None:
                return
            block = self._blocks[found.codec]
            block.arena.fill(block.slot, found.payload)
            yield self._plain(*numbers_of(block, self._body.block_size))
        tail = self._body.tails[self._index]
        layout = self._layouts[exact_codec(self._body.codec).value]
        for keys, values in tail_numbers(tail, layout, self._body.num_tail_tokens):
            yield self._plain(keys, values)

    def _plain(self, keys: Tensor, values: Tensor) -> _Chunk:
        """Undo the rotation of the foreign format. keys, values: (L, K, tokens, D).

        They may lie in a block that is filled again, so they are copied.
        """
        keys = rotate(keys, self._rotation.keys).clone()
        values = rotate(values, self._rotation.values).clone()
        return _Chunk(keys.shape[2], (keys, values))

    def _wanted(self) -> SequenceOf[Wanted]:
        hashes = self._body.hashes[self._index]
        step = self._body.block_size * TOKEN_BYTES
        return [
            Wanted(
                block_hash,
                hashes[at - 1] if at else self._body.root,
                self._body.token_ids[at * step : (at + 1) * step],
            )
            for at, block_hash in enumerate(hashes)
        ]


def _write(table: BlockTable, keys: Tensor, values: Tensor) -> None:
    """Write keys and values (L, K, tokens, D) into the open block of a table."""
    rotation = table.memory.rotation
    keys, values = rotate(keys, rotation.keys), rotate(values, rotation.values)
    write_numbers(table.block(len(table.hashes)), 0, keys, values)


def _single(layout: BlockLayout) -> Block:
    """Return a block that belongs to nobody else."""
    block = BlockPool(layout, ByteBudget(layout.slab_bytes)).allocate()
    assert block is not None
    return block
