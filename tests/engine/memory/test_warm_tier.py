from __future__ import annotations

from engine.config import EngineConfig, KVCodec
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.cold_store import MemoryColdStore
from engine.memory.factory import build_memory
from engine.memory.warm_tier import default_warm_budget
from tests.engine.memory.naive import assert_consistent, assert_holds, tiny_spec, write_tokens

SPEC = tiny_spec()
TEXT = [token % 50 for token in range(64)]
SLAB = (
    PagedAttentionMemory(SPEC, MemoryOptions(KVCodec.F32, 16, 0)).breakdown().bytes_per_token * 16
)


def build(*, hot=4, warm=8, store=None):
    options = MemoryOptions(KVCodec.F32, 16, SLAB * hot, warm_budget_bytes=SLAB * warm)
    return PagedAttentionMemory(SPEC, options, store=store)


def crowd_out(memory, first=60):
    """Fill hot memory with another text."""
    other = memory.create()
    assert write_tokens(memory, SPEC, other, [], [first] * 64)
    memory.release(other)


def use(memory, name):
    return next(tier for tier in memory.breakdown().tiers if tier.name == name)


def filled(memory, text=TEXT):
    sequence = memory.create()
    assert write_tokens(memory, SPEC, sequence, [], text)
    return sequence


def test_what_hot_memory_gives_up_comes_back_from_the_warm_tier():
    memory = build()
    memory.release(filled(memory))
    crowd_out(memory)
    assert use(memory, "warm").num_blocks == 4
    again = memory.create()
    match = memory.attach(again, [*TEXT, 1])
    assert (match.hot, match.warm, match.cold) == (0, 64, 0)
    assert_holds(memory, SPEC, again, TEXT)
    assert_consistent(memory)


def test_the_warm_tier_keeps_to_its_budget_and_drops_the_longest_unused():
    memory = build(warm=6)
    memory.release(filled(memory))
    crowd_out(memory, 60)
    crowd_out(memory, 61)
    tier = use(memory, "warm")
    assert tier.used_bytes <= tier.budget_bytes
    assert tier.num_blocks == 6
    again = memory.create()
    assert memory.attach(again, [60] * 65).warm == 64


def test_pinned_blocks_outlive_others():
    memory = build(warm=4)
    sequence = filled(memory)
    memory.pin(sequence, 32)
    memory.release(sequence)
    for token in range(60, 66):
        crowd_out(memory, token)
    again = memory.create()
    assert memory.attach(again, [*TEXT, 1]).total == 32


def test_warm_blocks_and_stored_ones_make_one_prefix():
    store = MemoryColdStore()
    memory = build(warm=2, store=store)
    sequence = filled(memory)
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    memory.release(sequence)
    crowd_out(memory)
    again = memory.create()
    match = memory.attach(again, [*TEXT, 1])
    assert (match.warm, match.cold) == (32, 32)
    assert_holds(memory, SPEC, again, TEXT)


def test_clearing_drops_warm_blocks_as_well():
    memory = build()
    memory.release(filled(memory))
    memory.clear()
    assert use(memory, "warm").num_blocks == use(memory, "warm").used_bytes == 0
    assert memory.attach(memory.create(), [*TEXT, 1]).total == 0


def test_on_a_cpu_the_tier_is_off_unless_it_is_asked_for():
    assert default_warm_budget("cpu", 64 << 30) == 0
    assert default_warm_budget("cuda", 64 << 30) == 4 << 30
    assert default_warm_budget("cuda", 8 << 30) == 2 << 30
    names = [tier.name for tier in build_memory(SPEC, EngineConfig()).breakdown().tiers]
    assert names == ["hot"]
    asked = EngineConfig(warm_budget_bytes=1 << 20)
    assert use(build_memory(SPEC, asked), "warm").budget_bytes == 1 << 20
