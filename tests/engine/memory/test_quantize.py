from __future__ import annotations

import random

import pytest
import torch

from engine.config import KVCodec
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.codec import BlockLayout, is_quantised
from engine.memory.cold_store import MemoryColdStore
from engine.memory.interface import AttentionGroup
from engine.memory.quantize import hadamard, pack_planes, quantize, unpack_values
from tests.engine.memory.naive import (
    NUM_HEADS,
    assert_consistent,
    assert_holds,
    contents,
    first_held,
    naive_attention,
    rows,
    tiny_spec,
    write_tokens,
)

QUANTISED = [KVCodec.INT8, KVCodec.K8V4]
SPEC = tiny_spec(AttentionGroup((0, 1), 2, 64), AttentionGroup((2,), 4, 24, window=50))
TEXT = [random.Random(3).randrange(90) for _ in range(200)]
TOLERANCE = {KVCodec.INT8: 0.03, KVCodec.K8V4: 0.6}


def build(codec, *, block_size=16, budget=1 << 24, store=None):
    return PagedAttentionMemory(SPEC, MemoryOptions(codec, block_size, budget), store=store)


def filled(codec, text=TEXT, **options):
    memory = build(codec, **options)
    sequence = memory.create()
    for start in range(0, len(text), 40):
        assert write_tokens(memory, SPEC, sequence, text[:start], text[start : start + 40])
    return memory, sequence


def codecs_of(memory, sequence):
    return [block.layout.codec for block in memory._sequences[sequence].tables[0].blocks]


def test_the_hadamard_matrix_is_its_own_inverse():
    matrix = hadamard(64)
    torch.testing.assert_close(matrix @ matrix, torch.eye(64))


def test_integers_belong_to_the_rounded_scale():
    x = torch.randn(50, 32)
    numbers, scales = quantize(x, 127)
    assert numbers.abs().max() <= 127
    assert ((numbers * scales.float() - x).abs() <= scales.float() * 0.51).all()
    zero, _ = quantize(torch.zeros(1, 4), 127)
    assert not zero.any()


def test_nibbles_come_back_in_order():
    values = torch.arange(-7, 8).float().repeat(5)[:64].view(1, 64)
    packed = pack_planes(KVCodec.K8V4, values, values)
    torch.testing.assert_close(unpack_values(KVCodec.K8V4, packed[1], packed[3]), values)
    assert packed[1].shape == (1, 32)
    assert packed[3].shape == (1, 2)


@pytest.mark.parametrize(("codec", "most"), [(KVCodec.INT8, 0.52), (KVCodec.K8V4, 0.41)])
def test_a_quantised_slab_is_small(codec, most):
    group = AttentionGroup(tuple(range(30)), 3, 64)
    exact = BlockLayout.of(group, KVCodec.F16, 32).slab_bytes
    assert BlockLayout.of(group, codec, 32).slab_bytes <= most * exact


@pytest.mark.parametrize("codec", QUANTISED)
def test_first_block_and_recent_tokens_stay_exact(codec):
    memory, sequence = filled(codec)
    codecs = codecs_of(memory, sequence)
    num_packed = (200 - 64) // 16
    assert codecs == [KVCodec.F16] + [codec] * (num_packed - 1) + [KVCodec.F16] * 5
    assert_holds(memory, SPEC, sequence, TEXT, tolerance=TOLERANCE[codec])
    assert_consistent(memory)


@pytest.mark.parametrize("num_read", [0, 60])
def test_pinned_text_stays_exact(num_read):
    memory = build(KVCodec.INT8)
    sequence = memory.create()
    assert num_read == 0 or write_tokens(memory, SPEC, sequence, [], TEXT[:num_read])
    memory.pin(sequence, 40)
    assert write_tokens(memory, SPEC, sequence, TEXT[:num_read], TEXT[num_read:])
    # The third block is not pinned as a whole.
    quantised = [is_quantised(codec) for codec in codecs_of(memory, sequence)]
    assert quantised[:5] == [False, False, True, True, True]


@pytest.mark.parametrize("codec", QUANTISED)
@pytest.mark.parametrize("num_new", [1, 7])
def test_attention_is_that_over_the_dequantised_numbers(codec, num_new):
    memory, sequence = filled(codec)
    new = [5] * num_new
    assert memory.allocate([(sequence, num_new)])
    view = memory.step([(sequence, num_new)])
    outs = {}
    for group in SPEC.groups:
        for layer in group.layers:
            heads, dim = group.num_key_value_heads, group.head_dim
            q = rows(new, 200, layer, NUM_HEADS, dim, 2)
            k, v = (rows(new, 200, layer, heads, dim, kind) for kind in (0, 1))
            outs[layer] = (q, view.attend(layer, q, k, v, scale=0.2))
    memory.commit(sequence, new)
    for index, group in enumerate(SPEC.groups):
        for slot, layer in enumerate(group.layers):
            keys, values = (contents(memory, sequence, index, slot, kind) for kind in (0, 1))
            q, out = outs[layer]
            expected = naive_attention(q, keys, values, 200, scale=0.2, window=group.window)
            torch.testing.assert_close(out, expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("codec", QUANTISED)
def test_a_restored_sequence_has_the_very_same_numbers(codec):
    store = MemoryColdStore()
    memory, sequence = filled(codec, store=store)
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    again = build(codec, store=store)
    restored, _, match = again.restore(store.read_manifests(SPEC.fingerprint, "chat")[0])
    assert match.total == 200
    for step in range(3):
        known = TEXT + [7] * (40 * step)
        for index, group in enumerate(SPEC.groups):
            for slot in range(len(group.layers)):
                for kind in (0, 1):
                    left = contents(memory, sequence, index, slot, kind)
                    right = contents(again, restored, index, slot, kind)
                    start = max(
                        first_held(memory, sequence, index), first_held(again, restored, index)
                    )
                    assert torch.equal(left[start:], right[start:])
        assert write_tokens(memory, SPEC, sequence, known, [7] * 40)
        assert write_tokens(again, SPEC, restored, known, [7] * 40)
    assert_consistent(again)


def test_blocks_are_stored_once_and_only_in_their_final_codec():
    store = MemoryColdStore()
    memory, sequence = filled(KVCodec.INT8, store=store)
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    assert sorted({block.codec for block in store.blocks.values()}) == ["f16", "int8"]
    assert sum(block.codec == "f16" for block in store.blocks.values()) == 2
    assert write_tokens(memory, SPEC, sequence, TEXT, [1] * 16)
    job = memory.snapshot(sequence, "chat", "main", b"")
    assert [block.codec for block in job.blocks] == ["int8", "int8"]


@pytest.mark.parametrize("old", [KVCodec.F32, KVCodec.INT8, KVCodec.K8V4])
@pytest.mark.parametrize("new", [KVCodec.F16, KVCodec.INT8, KVCodec.K8V4])
@pytest.mark.parametrize("block_size", [16, 32])
def test_codecs_convert_into_each_other(old, new, block_size):
    store = MemoryColdStore()
    memory, sequence = filled(old, store=store)
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    again = build(new, block_size=block_size, store=store)
    restored, _, match = again.restore(store.read_manifests(SPEC.fingerprint, "chat")[0])
    assert match.total == 200
    tolerance = TOLERANCE.get(old, 0.002) + TOLERANCE.get(new, 0.002)
    assert_holds(again, SPEC, restored, TEXT, tolerance=tolerance)
    assert_consistent(again)


def test_pinned_text_that_comes_back_from_the_store_stays_exact_for_others_too():
    store = MemoryColdStore()
    memory = build(KVCodec.INT8, store=store)
    sequence = memory.create()
    memory.pin(sequence, 100)
    assert write_tokens(memory, SPEC, sequence, [], TEXT)
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    again = build(KVCodec.INT8, store=store)
    other = again.create()
    again.pin(other, 100)
    assert again.attach(other, TEXT).cold > 100
    exact = [not is_quantised(codec) for codec in codecs_of(again, other)]
    assert exact[:8] == [True] * 6 + [False] * 2
    assert_consistent(again)


def test_forks_of_different_age_keep_what_each_needs():
    memory, sequence = filled(KVCodec.INT8)
    fork = memory.fork(sequence, 90)
    assert fork is not None
    assert memory.truncate(sequence, 150) == 150
    assert write_tokens(memory, SPEC, fork, TEXT[:90], [3] * 50)
    assert write_tokens(memory, SPEC, sequence, TEXT[:150], [4] * 50)
    assert_holds(memory, SPEC, fork, TEXT[:90] + [3] * 50, tolerance=0.05)
    assert_holds(memory, SPEC, sequence, TEXT[:150] + [4] * 50, tolerance=0.05)
    assert_consistent(memory)


@pytest.mark.parametrize("codec", QUANTISED)
def test_a_resting_sequence_keeps_nothing_exact_but_its_first_block_and_its_tail(codec):
    memory, sequence = filled(codec)
    memory.rest(sequence)
    exact = KVCodec.F16
    assert codecs_of(memory, sequence) == [exact, *[codec] * 11, exact]
    assert_holds(memory, SPEC, sequence, TEXT, tolerance=TOLERANCE[codec])
    assert write_tokens(memory, SPEC, sequence, TEXT, [7] * 40)
    assert_holds(memory, SPEC, sequence, TEXT + [7] * 40, tolerance=TOLERANCE[codec])
    assert_consistent(memory)


@pytest.mark.parametrize(("codec", "limit"), [(KVCodec.F16, 0.22), (KVCodec.INT8, 0.13)])
def test_fifty_conversations_with_one_system_prompt_take_a_fraction(codec, limit):
    group = AttentionGroup(tuple(range(30)), 3, 64)
    memory = PagedAttentionMemory(tiny_spec(group), MemoryOptions(codec, 32, 1 << 30))
    system = [token % 77 for token in range(1000)]
    for number in range(50):
        sequence = memory.create()
        text = system + [100 + number] * 200
        reused = memory.attach(sequence, text).total
        assert memory.allocate([(sequence, len(text) - reused)])
        memory.commit(sequence, text[reused:])
        memory.pin(sequence, 1000)
        memory.rest(sequence)
    independent = 50 * 1200 * 30 * 3 * 64 * 2 * 2
    assert memory.breakdown().tiers[0].used_bytes <= limit * independent
