"""Chooses the kind of memory a model needs and how much of it there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.block_pool import ARENAS_PER_POOL
from engine.memory.codec import BlockLayout

if TYPE_CHECKING:
    from engine.config import EngineConfig
    from engine.memory.interface import ColdStore, Memory, MemorySpec

DEFAULT_CONTEXT_LENGTH = 8192


def build_memory(
    spec: MemorySpec, config: EngineConfig, *, store: ColdStore | None = None
) -> Memory:
    """Return the memory for a model.

    Without a budget in config, hot memory is what one full context needs, and up to a quarter of
    the machine's free memory where that is more.
    """
    options = MemoryOptions(
        codec=config.kv_codec,
        block_size=config.block_size,
        budget_bytes=config.hot_budget_bytes or default_hot_budget(spec, config),
        device=config.device,
    )
    return PagedAttentionMemory(spec, options, store=store)


def default_hot_budget(spec: MemorySpec, config: EngineConfig) -> int:
    """Return bytes for one full context, or a quarter of free memory where that is more."""
    context_length = config.context_length or DEFAULT_CONTEXT_LENGTH
    # A fork may copy one block per group, and every group may waste part of one.
    num_blocks = -(-context_length // config.block_size) + 2
    slabs = (
        BlockLayout.of(group, config.kv_codec, config.block_size).slab_bytes
        for group in spec.groups
    )
    free_bytes: int = psutil.virtual_memory().available
    needed_bytes = num_blocks * sum(slabs)
    return max(needed_bytes + needed_bytes // ARENAS_PER_POOL, free_bytes // 4)
