"""Moves a part of what was read to other positions: kept keys are rotated again, values copied.

The copy is approximate, because what was kept was read while the rest could be seen. It gets
derived hashes, so that nobody takes its blocks for freshly read ones. Which places stay, and
whether to do it at all, is decided elsewhere.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from engine.memory.cold_reader import Wanted
from engine.memory.packing import numbers_of, write_numbers
from engine.memory.prefix_index import HASH_BYTES, chain_hash
from engine.memory.quantize import rotate
from engine.memory.sequence import Prefix, to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence as SequenceOf

    from torch import Tensor

    from engine.memory.block_pool import Block
    from engine.memory.cold_reader import ColdReader
    from engine.memory.groups import Groups
    from engine.memory.interface import AttentionGroup
    from engine.memory.sequence import BlockTable, Sequence

MoveKeys = Callable[["AttentionGroup", "Tensor", "Tensor"], None]
"""Moves keys (L, K, T, D) float32 of a group in place, by distances (T,) int64."""


def hold(found: Sequence, places: SequenceOf[int], reader: ColdReader) -> bool:
    """Bring back what left a window and would be seen from a copy of these places.

    False when some of it is nowhere any more.
    """
    size = found.tables[0].memory.pool.layout.block_size
    for table in found.tables:
        first = table.memory.first_needed(len(places)) * size
        needed = places[first] // size if first < len(places) else table.num_given_up
        for at in range(table.num_given_up - 1, needed - 1, -1):
            block = _found_again(found, table, at, reader)
            if block is None:
                return False
            table.blocks.insert(0, block)
            table.num_given_up = at
    return True


def _found_again(found: Sequence, table: BlockTable, at: int, reader: ColdReader) -> Block | None:
    """Return a sealed block that a table gave up, now owned by it; None where it is gone."""
    size = table.memory.pool.layout.block_size
    block = table.memory.find(table.hashes[at])
    if block is not None:
        block.pool.acquire(block)
        return block
    ids = found.token_bytes(at * size, (at + 1) * size)
    wanted = Wanted(table.hashes[at], table.tip(at), ids)
    for loaded in reader.load(table.memory, [wanted]):
        return loaded.pool.seal(loaded, block_hash=wanted.hash, parent=wanted.parent, token_ids=ids)
    return None


def rolled(
    groups: Groups,
    found: Sequence,
    places: SequenceOf[int],
    move_keys: MoveKeys,
    make_room: Callable[[], bool],
) -> Sequence | None:
    """Return a new sequence of some places of another, at positions 0, 1, 2 and so on.

    found is used up on the way: its blocks are given up as soon as they are copied. places:
    ascending, of an attention memory where nothing was thinned out. make_room is asked while the
    pools are full. None when there is no room at all.
    """
    assert found.num_dropped == 0
    token_ids = array("i", [found.token_ids[at] for at in places])
    copy = groups.new_sequence(Prefix(token_ids[:1], 1, _derived_root(found, places)))
    copy.num_pinned = min(found.num_pinned, _num_unmoved(places))
    size = groups.block_size
    firsts = [_first_copied(table, places) for table in found.tables]
    for start in range(0, len(places), size):
        end = min(start + size, len(places))
        _let_go(found, places[start] // size)
        if not _append(found, copy, places[start:end], firsts, move_keys, make_room):
            groups.cut(copy, 0)
            groups.cut(found, 0)
            return None
        copy.token_ids.extend(token_ids[start:end])
        copy.num_reserved = copy.length
        groups.seal_full(copy)
    groups.cut(found, 0)
    return copy


def _num_unmoved(places: SequenceOf[int]) -> int:
    return next((at for at, place in enumerate(places) if at != place), len(places))


def _first_copied(source: BlockTable, places: SequenceOf[int]) -> int:
    """Return the first block of a copy that a table can fill, as far back as it would be held."""
    size = source.memory.pool.layout.block_size
    first = source.memory.first_held(len(places))
    while first * size < len(places) and places[first * size] // size < source.num_given_up:
        first += 1
    return first


def _let_go(found: Sequence, num_blocks: int) -> None:
    """Give up blocks that nothing more is copied from, as far as they can be found again."""
    for table in found.tables:
        table.give_up(min(num_blocks, table.num_settled))


def _append(
    found: Sequence,
    copy: Sequence,
    places: SequenceOf[int],
    firsts: SequenceOf[int],
    move_keys: MoveKeys,
    make_room: Callable[[], bool],
) -> bool:
    """Append one block of places to every table; False when there is no room.

    firsts: per table, the first block that is copied; those before have left its window.
    """
    for source, target, first in zip(found.tables, copy.tables, firsts, strict=True):
        memory = target.memory
        at = copy.length // memory.pool.layout.block_size
        if at < first:
            ids = to_bytes([found.token_ids[place] for place in places])
            target.append_given_up(chain_hash(target.tip(at), ids, memory.salt))
            continue
        while not target.reserve(at + 1):
            if not make_room():
                return False
        _copy(source, target, places, copy.length, move_keys)
    return True


def _copy(
    source: BlockTable,
    target: BlockTable,
    places: SequenceOf[int],
    position: int,
    move_keys: MoveKeys,
) -> None:
    """Write the numbers of some places into the open block at position, keys moved there."""
    keys, values = _numbers(source, places)
    device = keys.device
    distances = torch.arange(position, position + len(places)) - torch.tensor(places)
    if bool(distances.any()):
        matrix = target.memory.rotation.keys
        keys = rotate(keys.float(), matrix).contiguous()
        move_keys(target.memory.group, keys, distances.to(device))
        keys = rotate(keys, matrix)
    at = position // target.memory.pool.layout.block_size
    write_numbers(target.block(at), 0, keys, values)


def _numbers(source: BlockTable, places: SequenceOf[int]) -> tuple[Tensor, Tensor]:
    """Return keys and values (L, K, T, D) of some places, as they are stored."""
    size = source.memory.pool.layout.block_size
    parts = []
    for run in _runs(places, size):
        at, offset = divmod(run.start, size)
        keys, values = numbers_of(source.block(at), offset + len(run))
        parts.append((keys[:, :, offset:], values[:, :, offset:]))
    keys, values = (torch.cat(kind, dim=2) for kind in zip(*parts, strict=True))
    return keys, values


def _runs(places: SequenceOf[int], size: int) -> list[range]:
    """Cut ascending places into runs of neighbours that lie in one block each."""
    runs: list[range] = []
    for place in places:
        if runs and place == runs[-1].stop and place % size:
            runs[-1] = range(runs[-1].start, place + 1)
        else:
            runs.append(range(place, place + 1))
    return runs


def _derived_root(found: Sequence, places: SequenceOf[int]) -> bytes:
    """Return a parent that no other blocks have but those with the same history and choice."""
    digest = hashlib.blake2b(b"rolled|", digest_size=HASH_BYTES)
    digest.update(found.tables[0].root)
    digest.update(to_bytes(found.token_ids))
    digest.update(to_bytes(places))
    return digest.digest()
