"""Turns stored blocks of one K/V format into blocks of another: other codec, other block size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.memory.block_pool import BlockPool, ByteBudget
from engine.memory.codec import BlockLayout, exact_codec
from engine.memory.cold_reader import Wanted
from engine.memory.packing import numbers_of, write_numbers
from engine.memory.prefix_index import TOKEN_BYTES, chain_salt
from engine.memory.quantize import Rotation, rotate
from engine.memory.sequence import from_bytes
from engine.memory.snapshot import tail_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        """Fill an empty sequence as far as blocks are sound and room lasts; return its length."""
        stagings = [_Staging(self._spec, body, index) for index in range(len(body.hashes))]
        streams = zip(*(staging.chunks(self._reader) for staging in stagings), strict=False)
        token_ids = from_bytes(body.token_ids)
        found.num_pinned = body.num_pinned
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
    """Blocks of the foreign format, one per codec, filled again and again."""

    def __init__(self, spec: MemorySpec, body: ManifestBody, index: int) -> None:
        self._body = body
        self._index = index
        group = spec.groups[index]
        self._salt = chain_salt(spec.fingerprint, body.codec, body.block_size, index)
        self._layouts = {
            codec.value: BlockLayout.of(group, codec, body.block_size)
            for codec in (exact_codec(body.codec), body.codec)
        }
        self._blocks = {codec: _single(layout) for codec, layout in self._layouts.items()}
        self._rotation = Rotation.of(body.codec, group.head_dim)

    def chunks(self, reader: ColdReader) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield keys and values (L, K, tokens, D) of one block after another, then of the tail."""
        num_sound = 0
        wanted = self._wanted()
        for stored in reader.sound_blocks(wanted, self._layouts, self._salt):
            num_sound += 1
            block = self._blocks[stored.codec]
            block.arena.fill(block.slot, stored.payload)
            yield self._plain(*numbers_of(block, self._body.block_size))
        if num_sound == len(wanted):
            tail = self._body.tails[self._index]
            layout = self._layouts[exact_codec(self._body.codec).value]
            for keys, values in tail_numbers(tail, layout, self._body.num_tail_tokens):
                yield self._plain(keys, values)

    def _plain(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Undo the rotation of the foreign format."""
        return rotate(keys, self._rotation.keys), rotate(values, self._rotation.values)

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


def _write(table: BlockTable, position: int, keys: Tensor, values: Tensor) -> None:
    """Write keys and values (L, K, tokens, D) at position.. of a table that has room."""
    rotation = table.memory.rotation
    keys, values = rotate(keys, rotation.keys), rotate(values, rotation.values)
    size = table.memory.pool.layout.block_size
    num_tokens = keys.shape[2]
    done = 0
    while done < num_tokens:
        at, offset = divmod(position + done, size)
        count = min(size - offset, num_tokens - done)
        part = slice(done, done + count)
        write_numbers(table.block(at), offset, keys[:, :, part], values[:, :, part])
        done += count


def _single(layout: BlockLayout) -> Block:
    """Return a block that belongs to nobody else."""
    block = BlockPool(layout, ByteBudget(layout.slab_bytes)).allocate()
    assert block is not None
    return block
