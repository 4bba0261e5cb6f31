"""How many bytes the memory of a model really takes, by tier, and what sharing saves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.memory.interface import MemoryBreakdown, TierUse

if TYPE_CHECKING:
    from engine.memory.block_pool import ByteBudget
    from engine.memory.groups import Groups
    from engine.memory.storage import ColdStore
    from engine.memory.warm_tier import WarmTier


def breakdown_of(
    groups: Groups, budget: ByteBudget, warm: WarmTier, store: ColdStore | None
) -> MemoryBreakdown:
    """Count blocks and bytes of every tier."""
    pools = [pool for memory in groups.memories for pool in memory.pools]
    num_blocks = sum(pool.num_blocks for pool in pools)
    hot_bytes = sum(pool.num_blocks * pool.slab_bytes for pool in pools)
    extra = [
        (block.ref_count - 1, pool.slab_bytes)
        for pool in pools
        for block in pool.blocks()
        if block.ref_count > 1
    ]
    held_bytes = sum(
        pool.slab_bytes for pool in pools for block in pool.blocks() if block.ref_count
    )
    slab_bytes = sum(memory.pools[-1].slab_bytes for memory in groups.memories)
    tiers = [TierUse("hot", hot_bytes, budget.limit_bytes, num_blocks)]
    if warm.budget_bytes:
        tiers.append(TierUse("warm", warm.used_bytes, warm.budget_bytes, len(warm)))
    if store is not None:
        tiers.append(TierUse("cold", store.used_bytes(), store.budget_bytes(), 0))
    return MemoryBreakdown(
        tiers=tuple(tiers),
        shared_blocks=len(extra),
        saved_bytes=sum(owners * size for owners, size in extra),
        bytes_per_token=slab_bytes // groups.block_size,
        block_size=groups.block_size,
        held_bytes=held_bytes,
    )
