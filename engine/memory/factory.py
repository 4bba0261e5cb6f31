"""Chooses the kind of memory a model needs and how much of it there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.device import free_memory_bytes
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.block_pool import ARENAS_PER_POOL
from engine.memory.codec import BlockLayout, exact_codec, is_quantised
from engine.memory.hybrid import HybridMemory
from engine.memory.packing import EXACT_RECENT_TOKENS
from engine.memory.recurrent import RecurrentMemory
from engine.memory.warm_tier import default_warm_budget

if TYPE_CHECKING:
    from engine.config import EngineConfig, KVCodec
    from engine.memory.interface import ColdStore, Memory, MemorySpec

DEFAULT_CONTEXT_LENGTH = 8192
# The part of hot memory that a hybrid model's checkpoints may take: one in so many.
STATES_SHARE = 8
# What a new process has the system provide where conversations are stored: they are brought back
# at more than the speed at which many systems hand out fresh memory.
PREPARED_BYTES = 128 << 20


def build_memory(
    spec: MemorySpec, config: EngineConfig, *, store: ColdStore | None = None
) -> Memory:
    """Return the memory for a model.

    Without a budget in config, hot memory is what one full context needs, and up to a quarter of
    the machine's free memory where that is more.
    """
    budget_bytes = config.hot_budget_bytes or default_hot_budget(spec, config)
    if spec.recurrent is None:
        return _attention(spec, config, budget_bytes, store)
    if not spec.groups:
        return _recurrent(spec, config, budget_bytes, store)
    states_bytes = budget_bytes // STATES_SHARE
    return HybridMemory(
        _attention(spec, config, budget_bytes - states_bytes, store),
        _recurrent(spec, config, states_bytes, store),
    )


def default_hot_budget(spec: MemorySpec, config: EngineConfig) -> int:
    """Return bytes for one full context, or a quarter of free memory where that is more."""
    needed_bytes = _context_bytes(spec, config)
    if is_quantised(config.kv_codec):
        # Tokens are written and recent ones kept in exact blocks.
        num_exact = 4 + -(-(config.prefill_chunk + EXACT_RECENT_TOKENS) // config.block_size)
        exact = _slab_bytes(spec, exact_codec(config.kv_codec), config.block_size)
        needed_bytes += num_exact * exact
    return max(needed_bytes + needed_bytes // ARENAS_PER_POOL, free_memory_bytes() // 4)


def _context_bytes(spec: MemorySpec, config: EngineConfig) -> int:
    """Return the bytes of one full context in its final codec."""
    context_length = config.context_length or DEFAULT_CONTEXT_LENGTH
    # A fork may copy one block per group, and every group may waste part of one.
    num_blocks = -(-context_length // config.block_size) + 2
    return num_blocks * _slab_bytes(spec, config.kv_codec, config.block_size)


def _attention(
    spec: MemorySpec, config: EngineConfig, budget_bytes: int, store: ColdStore | None
) -> PagedAttentionMemory:
    options = MemoryOptions(
        config.kv_codec,
        config.block_size,
        budget_bytes,
        config.device,
        slack_tokens=config.prefill_chunk,
        warm_budget_bytes=_warm_budget(config),
    )
    memory = PagedAttentionMemory(spec, options, store=store)
    if store is not None:
        context_bytes = _context_bytes(spec, config)
        memory.prepare(min(PREPARED_BYTES, store.used_bytes(), context_bytes))
    return memory


def _recurrent(
    spec: MemorySpec, config: EngineConfig, budget_bytes: int, store: ColdStore | None
) -> RecurrentMemory:
    return RecurrentMemory(
        spec,
        block_size=config.block_size,
        budget_bytes=budget_bytes,
        device=config.device,
        store=store,
    )


def _warm_budget(config: EngineConfig) -> int:
    if config.warm_budget_bytes is not None:
        return config.warm_budget_bytes
    return default_warm_budget(config.device, free_memory_bytes())


def _slab_bytes(spec: MemorySpec, codec: KVCodec, block_size: int) -> int:
    """Return the bytes of one block of every group."""
    return sum(BlockLayout.of(group, codec, block_size).slab_bytes for group in spec.groups)
