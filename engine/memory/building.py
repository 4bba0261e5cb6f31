"""Puts the blocks of a model together: which layers share them, and where their bytes lie.

Knows devices and budgets; nothing of sequences.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from engine.memory.arena import SlabPart
from engine.memory.block_pool import BlockPool, ByteBudget
from engine.memory.codec import BlockLayout, exact_codec, exact_dtype
from engine.memory.gathering import Scratch
from engine.memory.prefix_index import chain_salt
from engine.memory.quantize import Rotation
from engine.memory.sequence import GroupMemory
from engine.placement import CPU, Placement

if TYPE_CHECKING:
    from engine.config import KVCodec
    from engine.memory.interface import AttentionGroup, MemorySpec
    from engine.memory.warm_tier import WarmTier


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Choices for the blocks of one model.

    budget_bytes: of hot memory, all groups and devices together; each device gets the part that its
    layers are of a block. slack_tokens: how far behind its window a sequence keeps blocks; a
    prefill chunk, so that a turn taken back costs nothing. warm_budget_bytes: of host memory for
    blocks that were given up; 0 drops them. placement: where layers are; None is the CPU.
    """

    codec: KVCodec
    block_size: int
    budget_bytes: int
    slack_tokens: int = 128
    warm_budget_bytes: int = 0
    placement: Placement | None = None

    def placement_of(self, spec: MemorySpec) -> Placement:
        """Return where the layers of a model are."""
        if self.placement is not None:
            return self.placement
        return Placement.of(1 + max(group.layers[-1] for group in spec.groups), CPU)


def bytes_by_device(
    spec: MemorySpec, codec: KVCodec, block_size: int, placement: Placement
) -> Counter[torch.device]:
    """Return what one block of every group takes on each device."""
    sizes: Counter[torch.device] = Counter()
    for group in spec.groups:
        for part in slab_parts(group, codec, block_size, placement):
            sizes[part.device] += part.layout.slab_bytes
    return sizes


def slab_parts(
    group: AttentionGroup, codec: KVCodec, block_size: int, placement: Placement
) -> list[SlabPart]:
    """Return which layers of a group's blocks lie where."""
    parts: list[SlabPart] = []
    first = 0
    for device, layers in placement.runs(group.layers):
        layout = BlockLayout.of(replace(group, layers=layers), codec, block_size)
        parts.append(SlabPart(device, first, layout))
        first += len(layers)
    return parts


def build_budget(spec: MemorySpec, options: MemoryOptions) -> ByteBudget:
    """Return the budget of every device."""
    placement = options.placement_of(spec)
    sizes = bytes_by_device(spec, options.codec, options.block_size, placement)
    whole = sum(sizes.values())
    return ByteBudget(
        {device: -(-options.budget_bytes * size // whole) for device, size in sizes.items()}
    )


def build_groups(
    spec: MemorySpec, options: MemoryOptions, budget: ByteBudget, warm: WarmTier
) -> list[GroupMemory]:
    """Return the pools of every attention group; what they evict goes to the warm tier."""
    return [
        _group_memory(
            group,
            chain_salt(spec.fingerprint, options.codec, options.block_size, index),
            options,
            options.placement_of(spec),
            budget,
            warm,
        )
        for index, group in enumerate(spec.groups)
    ]


def build_scratches(spec: MemorySpec, options: MemoryOptions) -> dict[torch.device, Scratch]:
    """Return what steps need on every device with attention layers."""
    placement = options.placement_of(spec)
    devices = [device for group in spec.groups for device, _ in placement.runs(group.layers)]
    return {device: Scratch(_compute_dtype(options.codec, device), device) for device in devices}


def _group_memory(
    group: AttentionGroup,
    salt: bytes,
    options: MemoryOptions,
    placement: Placement,
    budget: ByteBudget,
    warm: WarmTier,
) -> GroupMemory:
    codecs = dict.fromkeys((exact_codec(options.codec), options.codec))
    pools = [
        BlockPool(
            BlockLayout.of(group, codec, options.block_size),
            budget,
            parts=slab_parts(group, codec, options.block_size, placement),
            on_evict=warm.put,
        )
        for codec in codecs
    ]
    rotation = Rotation.of(options.codec, group.head_dim)
    return GroupMemory(
        group=group,
        pool=pools[0],
        packed=pools[1] if len(pools) > 1 else None,
        salt=salt,
        rotation=rotation,
        rotations=tuple(rotation.on(part.device) for part in pools[0].parts),
        slack_tokens=options.slack_tokens,
    )


def _compute_dtype(codec: KVCodec, device: torch.device) -> torch.dtype:
    """Return the dtype attention computes in; half precision only pays off the CPU."""
    return torch.float32 if device.type == "cpu" else exact_dtype(codec)
