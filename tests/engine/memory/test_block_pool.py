from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest
import torch

from engine.config import KVCodec
from engine.memory.block_pool import BlockPool, ByteBudget
from engine.memory.codec import BlockLayout
from engine.memory.interface import AttentionGroup

LAYOUT = BlockLayout.of(AttentionGroup((0, 1), 2, 8), KVCodec.F16, 16)


def build(num_blocks=4, **options):
    return BlockPool(LAYOUT, ByteBudget(num_blocks * LAYOUT.slab_bytes), **options)


def seal(pool, block, name: bytes, parent=b""):
    return pool.seal(block, block_hash=name * 16, parent=parent, token_ids=name * 64)


def test_a_slab_is_layer_then_key_or_value_then_head_then_token():
    pool = build()
    block = pool.allocate()
    for layer in range(2):
        for kind in (0, 1):
            for head in range(2):
                for token in range(16):
                    row = block.arena.sections[0].planes[kind][layer][block.slot][head, token]
                    row.copy_(torch.arange(8) + 8 * (token + 16 * (head + 2 * (kind + 2 * layer))))
    numbers = torch.frombuffer(bytearray(block.payload()), dtype=torch.float16)
    assert torch.equal(numbers[:1024], torch.arange(1024).half())
    assert block.addresses == (block.arena.sections[0].slab(block.slot).data_ptr(),)


def test_a_freed_block_comes_back_zeroed():
    pool = build(num_blocks=1)
    block = pool.allocate()
    block.arena.sections[0].slab(block.slot).fill_(255)
    pool.release(block)
    again = pool.allocate()
    assert again.addresses == block.addresses
    assert not again.arena.sections[0].slab(again.slot).any()


def test_a_block_that_is_filled_at_once_is_not_zeroed_before():
    pool = build(num_blocks=1)
    block = pool.allocate()
    block.arena.sections[0].slab(block.slot).fill_(255)
    pool.release(block)
    again = pool.allocate(is_filled=True)
    assert again.arena.sections[0].slab(again.slot).all()
    payload = bytes(range(256)) * (LAYOUT.slab_bytes // 256) + bytes(LAYOUT.slab_bytes % 256)
    again.arena.fill(again.slot, payload)
    assert again.payload().tobytes() == payload
    pool.release(again)
    assert not pool.allocate().payload().tobytes().strip(b"\0")


def test_blocks_are_given_up_by_pin_then_hits_then_age():
    gone: list[bytes] = []
    pool = build(on_evict=lambda block: gone.append(block.token_ids[:1]))
    blocks = {name: seal(pool, pool.allocate(), name) for name in (b"a", b"b", b"c", b"d")}
    pool.pin(blocks[b"a"])
    pool.touch(blocks[b"b"])
    pool.touch(blocks[b"b"])
    for block in blocks.values():
        pool.release(block)
    for _ in range(4):
        assert pool.allocate() is not None
    assert gone == [b"c", b"d", b"b", b"a"]
    assert pool.allocate() is None


def test_a_tail_is_reopened_by_its_only_owner_and_never_goes_to_a_lower_tier():
    gone: list[object] = []
    pool = build(num_blocks=1, on_evict=gone.append)
    tail = pool.seal(pool.allocate(), block_hash=b"t" * 16, parent=b"", token_ids=b"t" * 8)
    pool.acquire(tail)
    assert not pool.reopen(tail)
    pool.release(tail)
    assert pool.reopen(tail)
    assert (tail.hash, len(pool.index)) == (None, 0)
    assert not tail.arena.sections[0].slab(tail.slot)[LAYOUT.trailer_offset :].any()
    pool.release(pool.seal(tail, block_hash=b"t" * 16, parent=b"", token_ids=b"t" * 8))
    assert pool.allocate() is not None
    assert gone == []


def test_an_identical_block_is_given_back_for_the_known_one():
    pool = build()
    first = seal(pool, pool.allocate(), b"a")
    second = seal(pool, pool.allocate(), b"a")
    assert second is first
    assert (first.ref_count, first.hits, pool.num_blocks) == (2, 1, 1)


def test_an_idle_pool_gives_its_memory_back():
    budget = ByteBudget(1 << 20)
    pool = BlockPool(LAYOUT, budget)
    blocks = [pool.allocate() for _ in range(20)]
    assert pool.trim() == 0
    for block in blocks:
        pool.release(block)
    assert budget.used_bytes > 0
    assert pool.trim() > 0
    assert (budget.used_bytes, pool.reserved_bytes) == (0, 0)
    assert pool.allocate() is not None


def test_a_pool_in_need_takes_an_idle_arena_of_another():
    budget = ByteBudget(LAYOUT.slab_bytes * 2)
    rich, poor = BlockPool(LAYOUT, budget), BlockPool(LAYOUT, budget)
    kept = [seal(rich, rich.allocate(), name) for name in (b"a", b"b")]
    assert poor.allocate() is None
    for block in kept:
        rich.release(block)
    assert poor.allocate() is not None
    assert rich.num_blocks == 1


@pytest.mark.skipif(sys.platform != "linux", reason="pages are given back on Linux only")
def test_pages_of_free_blocks_go_back_and_those_in_use_stay():
    layout = BlockLayout.of(AttentionGroup((0, 1, 2), 2, 64), KVCodec.F16, 32)
    pool = BlockPool(layout, ByteBudget(64 * 16 * layout.slab_bytes))
    blocks = [pool.allocate() for _ in range(64)]
    for block in blocks:
        block.arena.sections[0].slab(block.slot).fill_(7)
    before = resident_bytes()
    kept = blocks[::8]
    for block in blocks:
        if block not in kept:
            pool.release(block)
    given_back = pool.trim()
    free_bytes = (len(blocks) - len(kept)) * layout.slab_bytes
    # Between two blocks in use, up to a page at each end is theirs as well.
    assert free_bytes - 2 * len(kept) * mmap.PAGESIZE <= given_back <= free_bytes
    assert before - resident_bytes() >= 0.8 * given_back
    assert pool.trim() == 0
    assert all((block.arena.sections[0].slab(block.slot) == 7).all() for block in kept)
    again = [pool.allocate() for _ in range(50)]
    assert not any(block.arena.sections[0].slab(block.slot).any() for block in again)


def resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux provides pages on request")
def test_prepared_memory_is_there_and_what_is_in_use_stays():
    layout = BlockLayout.of(AttentionGroup(tuple(range(8)), 4, 64), KVCodec.F32, 64)
    pool = BlockPool(layout, ByteBudget(24 * layout.slab_bytes))
    block = pool.allocate()
    block.arena.sections[0].slab(block.slot).fill_(7)
    before = resident_bytes()
    pool.prepare(16)
    assert resident_bytes() - before > 12 * layout.slab_bytes
    assert pool.reserved_bytes == 17 * layout.slab_bytes
    assert bool((block.arena.sections[0].slab(block.slot) == 7).all())
    assert not pool.allocate().payload().tobytes().strip(b"\0")
    pool.prepare(100)
    assert pool.reserved_bytes == 24 * layout.slab_bytes
