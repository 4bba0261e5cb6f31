"""Chooses the kind of memory a model needs and how much of it there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.device import free_memory_bytes
from engine.memory.attention import PagedAttentionMemory
from engine.memory.block_pool import ARENAS_PER_POOL
from engine.memory.building import MemoryOptions, bytes_by_device
from engine.memory.codec import BlockLayout, exact_codec, is_quantised
from engine.memory.hybrid import HybridMemory
from engine.memory.packing import EXACT_RECENT_TOKENS
from engine.memory.recurrent import RecurrentMemory
from engine.memory.warm_tier import default_warm_budget
from engine.pages import provide_heap
from engine.placement import CPU, Placement

if TYPE_CHECKING:
    from engine.config import EngineConfig, KVCodec
    from engine.memory.interface import Memory, MemorySpec
    from engine.memory.storage import ColdStore

DEFAULT_CONTEXT_LENGTH = 8192
DEFAULT_BLOCK_SIZE = 32
# Every block costs some 20 us on its way back from the store, and less than this many bytes are
# copied in less: then a block has twice the tokens.
SMALL_BLOCK_BYTES = 64 << 10
# The part of hot memory that a hybrid model's checkpoints may take: one in so many.
STATES_SHARE = 8
# What a new process has the system provide where conversations are stored: they are brought back
# at more than the speed at which many systems hand out fresh memory.
PREPARED_BYTES = 256 << 20
# The same for what is read from the store before it is copied: a manifest and some blocks.
PREPARED_HEAP_BYTES = 8 << 20


def build_memory(
    spec: MemorySpec,
    config: EngineConfig,
    *,
    store: ColdStore | None = None,
    placement: Placement | None = None,
) -> Memory:
    """Return the memory for a model.

    Without a budget in config, hot memory is what one full context needs, and up to a quarter of
    the devices' free memory where that is more. placement: where its layers are; None is the CPU.
    """
    place = placement or Placement.of(num_layers_of(spec), CPU)
    budget_bytes = config.hot_budget_bytes or default_hot_budget(spec, config, place)
    if spec.recurrent is None:
        return _attention(spec, config, place, budget_bytes, store)
    if not spec.groups:
        return _recurrent(spec, config, place, budget_bytes, store)
    states_bytes = budget_bytes // STATES_SHARE
    return HybridMemory(
        _attention(spec, config, place, budget_bytes - states_bytes, store),
        _recurrent(spec, config, place, states_bytes, store),
    )


def block_size_of(spec: MemorySpec, config: EngineConfig) -> int:
    """Return how many tokens a block has: what config wants, or what suits the model and codec.

    A block of every group of layers then has at least 64 KiB, or 64 tokens.
    """
    if config.block_size is not None:
        return config.block_size
    sizes = [
        BlockLayout.of(group, config.kv_codec, DEFAULT_BLOCK_SIZE).slab_bytes
        for group in spec.groups
    ]
    is_small = min(sizes, default=SMALL_BLOCK_BYTES) < SMALL_BLOCK_BYTES
    return 2 * DEFAULT_BLOCK_SIZE if is_small else DEFAULT_BLOCK_SIZE


def num_layers_of(spec: MemorySpec) -> int:
    """Return the number of layers up to the last one that remembers something."""
    recurrent = () if spec.recurrent is None else spec.recurrent.layers
    return 1 + max(*(group.layers[-1] for group in spec.groups), *recurrent[-1:], 0)


def default_hot_budget(spec: MemorySpec, config: EngineConfig, placement: Placement) -> int:
    """Return bytes for one full context, or a quarter of free memory where that is more.

    All devices together: the one that is the shortest of memory for its layers decides.
    """
    needed_bytes = _context_bytes(spec, config)
    block_size = block_size_of(spec, config)
    if is_quantised(config.kv_codec):
        # Tokens are written and recent ones kept in exact blocks.
        num_exact = 4 + -(-(config.prefill_chunk + EXACT_RECENT_TOKENS) // block_size)
        exact = _slab_bytes(spec, exact_codec(config.kv_codec), block_size)
        needed_bytes += num_exact * exact
    return max(needed_bytes + needed_bytes // ARENAS_PER_POOL, _spare(spec, config, placement))


def _spare(spec: MemorySpec, config: EngineConfig, placement: Placement) -> int:
    """Return the most bytes of which no device holds more than a quarter of its free memory."""
    sizes = bytes_by_device(spec, config.kv_codec, block_size_of(spec, config), placement)
    if not sizes:
        return min(free_memory_bytes(device) for device in placement.devices) // 4
    whole = sum(sizes.values())
    return min(free_memory_bytes(device) // 4 * whole // size for device, size in sizes.items())


def _context_bytes(spec: MemorySpec, config: EngineConfig) -> int:
    """Return the bytes of one full context in its final codec."""
    context_length = config.context_length or DEFAULT_CONTEXT_LENGTH
    # A fork may copy one block per group, and every group may waste part of one.
    block_size = block_size_of(spec, config)
    num_blocks = -(-context_length // block_size) + 2
    return num_blocks * _slab_bytes(spec, config.kv_codec, block_size)


def _attention(
    spec: MemorySpec,
    config: EngineConfig,
    placement: Placement,
    budget_bytes: int,
    store: ColdStore | None,
) -> PagedAttentionMemory:
    options = MemoryOptions(
        config.kv_codec,
        block_size_of(spec, config),
        budget_bytes,
        slack_tokens=config.prefill_chunk,
        warm_budget_bytes=_warm_budget(config, placement),
        placement=placement,
    )
    memory = PagedAttentionMemory(spec, options, store=store)
    if store is not None:
        context_bytes = _context_bytes(spec, config)
        memory.prepare(min(PREPARED_BYTES, store.used_bytes(), context_bytes))
        provide_heap(min(PREPARED_HEAP_BYTES, store.used_bytes()))
    return memory


def _recurrent(
    spec: MemorySpec,
    config: EngineConfig,
    placement: Placement,
    budget_bytes: int,
    store: ColdStore | None,
) -> RecurrentMemory:
    return RecurrentMemory(
        spec,
        block_size=block_size_of(spec, config),
        budget_bytes=budget_bytes,
        placement=placement,
        store=store,
    )


def _warm_budget(config: EngineConfig, placement: Placement) -> int:
    if config.warm_budget_bytes is not None:
        return config.warm_budget_bytes
    return default_warm_budget(str(placement.last), free_memory_bytes())


def _slab_bytes(spec: MemorySpec, codec: KVCodec, block_size: int) -> int:
    """Return the bytes of one block of every group."""
    return sum(BlockLayout.of(group, codec, block_size).slab_bytes for group in spec.groups)
