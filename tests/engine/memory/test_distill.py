from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.config import KVCodec
from engine.errors import SnapshotError
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.cold_store import MemoryColdStore
from engine.memory.distill import Thinning, attention_mass, choose_places
from engine.memory.interface import AttentionGroup
from tests.engine.memory.naive import (
    FINGERPRINT,
    NUM_HEADS,
    assert_consistent,
    naive_attention,
    numbers,
    rows,
    tiny_spec,
    write_tokens,
)

GROUP = AttentionGroup((0, 2), 2, 8)
SPEC = tiny_spec(GROUP)
TEXT = [token * 7 % 31 for token in range(150)]


def build(codec=KVCodec.F32, *, store=None, budget=1 << 22, block_size=16):
    return PagedAttentionMemory(SPEC, MemoryOptions(codec, block_size, budget), store=store)


def places(num_kept=40, seed=0):
    """Random places for every layer and head; the first 4 and the last 20 in any case."""
    generator = torch.Generator().manual_seed(seed)
    mass = {layer: torch.rand(2, len(TEXT), generator=generator) for layer in GROUP.layers}
    return choose_places(mass, GROUP, Thinning(num_kept, 4, 20))


def thinned(memory, kept):
    sequence = memory.create()
    assert write_tokens(memory, SPEC, sequence, [], TEXT)
    return sequence, memory.distill(sequence, [kept])


def check_attention(memory, sequence, kept, later, new):
    """New tokens see exactly the places kept and what came later, each with its own numbers."""
    assert memory.allocate([(sequence, len(new))])
    view = memory.step([(sequence, len(new))])
    start = len(TEXT) + len(later)
    for slot, layer in enumerate(GROUP.layers):
        q = rows(new, start, layer, NUM_HEADS, 8, 2)
        k, v = (rows(new, start, layer, 2, 8, kind) for kind in (0, 1))
        out = view.attend(layer, q, k, v, scale=0.3)
        cells = []
        for kind in (0, 1):
            old = torch.stack(
                [
                    torch.stack(
                        [
                            numbers(TEXT[at], at, layer, 2, 8, kind)[head]
                            for at in kept[slot, head].tolist()
                        ]
                    )
                    for head in range(2)
                ],
                dim=1,
            )
            tail = rows(later + new, len(TEXT), layer, 2, 8, kind)
            cells.append(torch.cat((old, tail)))
        expected = naive_attention(q, *cells, kept.shape[2] + len(later), scale=0.3)
        torch.testing.assert_close(out, expected, atol=2e-3, rtol=2e-3)
    memory.commit(sequence, new)


def test_a_thinned_copy_attends_to_what_it_kept_and_counts_on_from_the_end():
    memory, kept = build(), places()
    sequence, copy = thinned(memory, kept)
    assert memory.length(copy) == memory.length(sequence) == 150
    assert memory.num_places(copy) == 40
    assert list(memory.token_ids(copy)) == TEXT
    later = []
    for new in ([3], [4, 5, 6], [7] * 30, [8]):
        check_attention(memory, copy, kept, later, new)
        later = later + new
    assert memory.length(copy) == 150 + 35
    assert list(memory.token_ids(copy)) == TEXT + later
    assert write_tokens(memory, SPEC, sequence, TEXT, [1])
    assert_consistent(memory)


def test_a_thinned_copy_forks_and_goes_back_to_where_it_began_and_no_further():
    memory, kept = build(), places()
    _, copy = thinned(memory, kept)
    check_attention(memory, copy, kept, [], [9] * 20)
    fork = memory.fork(copy, 155)
    check_attention(memory, fork, kept, [9] * 5, [1])
    assert memory.fork(copy, 149) is None
    assert memory.rollback_limit(copy, 149) == 0
    assert memory.rollback_limit(copy, 160) == 160
    assert memory.truncate(copy, 150) == 150
    check_attention(memory, copy, kept, [], [2, 3])
    assert memory.truncate(copy, 100) == 0
    assert write_tokens(memory, SPEC, copy, [], [5] * 20)
    assert_consistent(memory)


def test_attach_never_takes_a_thinned_block_for_a_whole_one():
    memory, kept = build(), places()
    sequence, copy = thinned(memory, kept)
    memory.release(sequence)
    for of_group in memory._groups.memories:
        of_group.pool.clear()
    other = memory.create()
    assert memory.attach(other, TEXT).total == 0
    assert memory.attach(copy, [*TEXT, 1, 2]).total == 150
    check_attention(memory, copy, kept, [], [1])


@pytest.mark.parametrize("block_size", [16, 32])
def test_a_thinned_copy_comes_back_after_a_restart(block_size):
    store = MemoryColdStore()
    memory, kept = build(store=store), places()
    _, copy = thinned(memory, kept)
    check_attention(memory, copy, kept, [], [9] * 20)
    job = memory.snapshot(copy, "copy", "main", b"log")
    assert job.manifest.num_tokens == 170
    store.submit(job)
    again = build(store=store, block_size=block_size)
    (manifest,) = store.read_manifests(FINGERPRINT, "copy")
    restored, log, match = again.restore(manifest)
    assert (log, match.total, again.num_places(restored)) == (b"log", 170, 60)
    check_attention(again, restored, kept, [9] * 20, [4, 4])
    body = bytearray(manifest.body)
    body[100] ^= 1
    with pytest.raises(SnapshotError):
        again.restore(replace(manifest, body=bytes(body)))


def test_a_part_of_a_thinned_beginning_is_worth_nothing():
    store = MemoryColdStore()
    memory, kept = build(store=store), places()
    _, copy = thinned(memory, kept)
    check_attention(memory, copy, kept, [], [9] * 20)
    store.submit(memory.snapshot(copy, "copy", "main", b""))
    store.blocks.popitem()
    del store.blocks[list(store.blocks)[1]]
    again = build(store=store)
    restored, _, match = again.restore(store.read_manifests(FINGERPRINT, "copy")[0])
    assert match.total == again.length(restored) == 0
    assert write_tokens(again, SPEC, restored, [], TEXT)


def test_a_full_memory_makes_no_copy():
    slab = build().breakdown().bytes_per_token * 16
    memory = build(budget=slab * 11)
    sequence, copy = thinned(memory, places())
    assert copy is None
    assert write_tokens(memory, SPEC, sequence, TEXT, [1])


def test_a_quantised_memory_can_be_thinned_out():
    memory, kept = build(KVCodec.INT8), places()
    _, copy = thinned(memory, kept)
    assert write_tokens(memory, SPEC, copy, TEXT, [9] * 100)
    assert memory.num_places(copy) == 140
    assert_consistent(memory)


def test_what_is_looked_at_stays_with_its_neighbours_and_the_ends():
    mass = {layer: torch.full((2, 60), 0.001) for layer in GROUP.layers}
    mass[2][1, 30] = 0.5
    kept = choose_places(mass, GROUP, Thinning(22, 5, 10))
    chosen = kept[1, 1].tolist()
    assert chosen[:5] == [0, 1, 2, 3, 4]
    assert chosen[5:12] == [27, 28, 29, 30, 31, 32, 33]
    assert chosen[12:] == list(range(50, 60))


def test_mass_is_the_mean_of_causal_attention():
    torch.manual_seed(0)
    q, keys = torch.randn(3, 4, 8), torch.randn(2, 10, 8)
    mass = attention_mass(q, keys)
    expected = torch.zeros(2, 10)
    for row in range(3):
        for head in range(4):
            seen = keys[head // 2, : 8 + row] @ q[row, head]
            expected[head // 2, : 8 + row] += torch.softmax(seen, 0) / 6
    torch.testing.assert_close(mass, expected)


def test_a_plan_keeps_both_ends_and_the_part_asked_for():
    assert Thinning.of(1000, 0.5, num_system=100) == Thinning(500, 100, 64)
    assert Thinning.of(1000, 0.05, num_system=100) == Thinning(164, 100, 64)
    assert Thinning.of(1001, 0.5, num_system=0) == Thinning(501, 4, 64)
    assert Thinning.of(30, 0.5, num_system=0) == Thinning(30, 0, 30)
