"""Blocks in two codecs: what stays exact, and when the rest is quantised.

In a quantised memory tokens are written into exact blocks. A sealed block is quantised once, when
it has fallen behind the recent window; the first block and pinned text stay exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.config import KVCodec
from engine.kernels import available
from engine.kernels.planes import WIDTH_MULTIPLE, pack_plane
from engine.kernels.structs import PlanePack
from engine.memory.codec import is_quantised
from engine.memory.quantize import pack_planes, unpack_values

if TYPE_CHECKING:
    from collections.abc import Sequence as SequenceOf

    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from engine.memory.arena import Section, SlabPart
    from engine.memory.block_pool import Block
    from engine.memory.sequence import BlockTable, Sequence

# Attention sinks live in the first block, and most of what a query looks at in the last tokens.
EXACT_RECENT_TOKENS = 64


def settle(found: Sequence, *, exact_recent: int = EXACT_RECENT_TOKENS) -> None:
    """Bring every sealed block of a sequence that is old enough into its final codec.

    Stops early, to go on another time, where there is no room for a quantised copy.
    """
    for table in found.tables:
        if table.memory.packed is None:
            table.num_settled = len(table.hashes)
        else:
            _settle(table, found, exact_recent)


def numbers_of(block: Block, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Return keys and values (L, K, tokens, D) of a block as they are stored, rotated or not.

    On the CPU, wherever the block lies.
    """
    parts = [_numbers(one, block.slot, num_tokens) for one in block.arena.sections]
    if len(parts) == 1:
        return parts[0][0].cpu(), parts[0][1].cpu()
    keys, values = (torch.cat([one.cpu() for one in kind]) for kind in zip(*parts, strict=True))
    return keys, values


def copy_tokens(source: Block, target: Block, num_tokens: int) -> None:
    """Copy the first num_tokens tokens of any block into an exact one of the same memory."""
    for ours, theirs in zip(source.arena.sections, target.arena.sections, strict=True):
        _write(theirs, target.slot, 0, _numbers(ours, source.slot, num_tokens))


def write_numbers(block: Block, offset: int, keys: Tensor, values: Tensor) -> None:
    """Write keys and values (L, K, tokens, D) into an exact block from token offset on."""
    assert block.hash is None
    assert not is_quantised(block.layout.codec)
    for section in block.arena.sections:
        slots = section.part.slots
        _write(section, block.slot, offset, (keys[slots], values[slots]))


def write_planes(block: Block, planes: SequenceOf[npt.NDArray[np.uint8]]) -> None:
    """Write the first tokens of an exact block. planes: keys and values, (L, K, tokens, bytes)."""
    assert block.hash is None
    assert not is_quantised(block.layout.codec)
    for section in block.arena.sections:
        for plane, whole in zip(section.whole_planes, planes, strict=True):
            source = whole[section.part.slots]
            target = plane[block.slot][:, :, : source.shape[2]]
            if target.device.type == "cpu":
                bytes_of(target)[:] = source
            else:
                target.copy_(torch.from_numpy(source.copy()).view(target.dtype))


def _numbers(section: Section, slot: int, num_tokens: int) -> tuple[Tensor, Tensor]:
    """Return keys and values (L, K, tokens, D) of the layers on one device."""
    planes = [plane[slot][:, :, :num_tokens] for plane in section.whole_planes]
    codec = section.part.layout.codec
    if not is_quantised(codec):
        return planes[0], planes[1]
    keys, values, key_scales, value_scales = planes
    return keys.float() * key_scales.float(), unpack_values(codec, values, value_scales)


def _write(section: Section, slot: int, offset: int, numbers: tuple[Tensor, Tensor]) -> None:
    """Write keys and values (L, K, tokens, D) of the layers on one device."""
    for plane, source in zip(section.whole_planes, numbers, strict=True):
        target = plane[slot][:, :, offset : offset + source.shape[2]]
        is_plain = target.dtype is source.dtype and source.stride(-1) == 1
        if is_plain and target.device.type == source.device.type == "cpu":
            # By numpy, on this thread alone: for so few bytes waking torch's threads costs more.
            bytes_of(target)[:] = bytes_of(source)
        else:
            target.copy_(source)


def bytes_of(plane: Tensor) -> npt.NDArray[np.uint8]:
    """Return (L, K, tokens, bytes) over the host memory of (L, K, tokens, D) numbers."""
    array: npt.NDArray[np.uint8] = plane.view(torch.uint8).numpy()
    return array


def _settle(table: BlockTable, found: Sequence, exact_recent: int) -> None:
    size = table.memory.pool.layout.block_size
    limit = min(len(table.hashes), max(0, found.length - exact_recent) // size)
    # What lies before a quantised block is old, so that all after the settled ones is exact.
    for at in range(len(table.hashes), max(limit, table.num_settled), -1):
        if is_quantised(table.block(at - 1).layout.codec):
            limit = at
            break
    # The block in which pinned text ends is each conversation's own: there would be many of it.
    num_exact = max(1, found.num_pinned // size)
    for at in range(table.num_settled, limit):
        if at >= num_exact and not _pack(table, at):
            return
        table.num_settled = at + 1


def _pack(table: BlockTable, at: int) -> bool:
    """Put a quantised block in the place of an exact one; False when there is no room."""
    exact = table.block(at)
    pool = table.memory.packed
    assert pool is not None
    if exact.pool is pool:
        return True
    assert exact.hash is not None
    block = pool.index.get(exact.hash)
    if block is not None:
        pool.acquire(block)
    else:
        block = pool.allocate()
        if block is None:
            return False
        _write_packed(block, exact)
        block = pool.seal(
            block, block_hash=exact.hash, parent=exact.parent, token_ids=exact.token_ids
        )
    table.replace(at, block)
    exact.pool.release(exact)
    exact.pool.drop(exact)
    return True


def _write_packed(block: Block, exact: Block) -> None:
    """Quantise an exact block into one of the same tokens."""
    for at, (target, source) in enumerate(
        zip(block.arena.sections, exact.arena.sections, strict=True)
    ):
        if _write_natively(target.part, block.addresses[at], source.part, exact.addresses[at]):
            continue
        keys, values = _numbers(source, exact.slot, exact.layout.block_size)
        planes = pack_planes(block.layout.codec, keys, values)
        for plane, numbers in zip(target.whole_planes, planes, strict=True):
            plane[block.slot].copy_(numbers)


def _write_natively(target: SlabPart, address: int, source: SlabPart, exact_address: int) -> bool:
    """Let the kernels quantise the layers on one device; False where they cannot.

    To the same bytes; from the slab at exact_address into the one at address.
    """
    info, layout = available(), source.layout
    width = layout.planes[0].shape[2]
    is_readable = layout.codec is KVCodec.F16 and source.device.type == "cpu"
    if info is None or not is_readable or width % WIDTH_MULTIPLE:
        return False
    for at, plane in enumerate(layout.planes):
        numbers, scales = target.layout.planes[at], target.layout.planes[at + 2]
        pack_plane(
            info,
            PlanePack(
                exact_address + plane.offset,
                address + numbers.offset,
                address + scales.offset,
                plane.layer_stride,
                numbers.layer_stride,
                scales.layer_stride,
                layout.num_layers,
                plane.shape[0] * plane.shape[1],
                width,
                int(numbers.dtype is torch.uint8),
            ),
        )
    return True
