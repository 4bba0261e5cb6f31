from __future__ import annotations

import random
from dataclasses import replace

import pytest

from engine.config import KVCodec
from engine.errors import SnapshotError, StoreError
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.cold_store import MemoryColdStore
from engine.memory.interface import AttentionGroup
from engine.memory.snapshot import session_log, unpack_body
from tests.engine.memory.naive import assert_consistent, assert_holds, tiny_spec, write_tokens

SPEC = tiny_spec(AttentionGroup((0, 1), 2, 4), AttentionGroup((2,), 1, 8))
TEXT = [token % 50 for token in range(75)]


def build(store, *, codec=KVCodec.F32, block_size=16, budget=1 << 22, spec=SPEC):
    return PagedAttentionMemory(spec, MemoryOptions(codec, block_size, budget), store=store)


def stored(text=TEXT, *, codec=KVCodec.F32, block_size=16, log=b"log"):
    store = MemoryColdStore()
    memory = build(store, codec=codec, block_size=block_size)
    sequence = memory.create()
    assert write_tokens(memory, SPEC, sequence, [], text)
    store.submit(memory.snapshot(sequence, "chat", "main", log))
    return store


def manifest_of(store):
    return store.read_manifests(SPEC.fingerprint, "chat")[0]


def test_a_restored_sequence_is_the_one_that_was_stored():
    store = stored()
    memory = build(store)
    sequence, log, match = memory.restore(manifest_of(store))
    assert (log, match.cold, match.hot, match.damaged) == (b"log", 75, 0, 0)
    assert_holds(memory, SPEC, sequence, TEXT)
    assert write_tokens(memory, SPEC, sequence, TEXT, [7, 8, 9])
    assert_holds(memory, SPEC, sequence, [*TEXT, 7, 8, 9])


@pytest.mark.parametrize("codec", [KVCodec.F32, KVCodec.INT8])
def test_a_prepared_memory_gives_back_what_is_not_used(codec):
    memory = build(stored(codec=codec), codec=codec)
    memory.prepare(1 << 16)
    assert memory.breakdown().tiers[0].used_bytes == 0
    assert memory.trim() >= 1 << 15
    assert memory.trim() == 0


def test_restoring_beside_the_same_text_shares_its_blocks():
    store = stored()
    memory = build(store)
    first, _, _ = memory.restore(manifest_of(store))
    second, _, match = memory.restore(manifest_of(store))
    assert (match.hot, match.cold) == (64, 11)
    assert memory.breakdown().shared_blocks == 8
    memory.truncate(first, 70)
    assert_holds(memory, SPEC, second, TEXT)


def test_attach_finds_stored_text_without_a_manifest():
    store = stored()
    memory = build(store)
    sequence = memory.create()
    match = memory.attach(sequence, [*TEXT[:60], 99, 98])
    assert (match.cold, match.total) == (48, 48)
    assert_holds(memory, SPEC, sequence, TEXT[:48])


def test_nothing_is_written_twice():
    store = MemoryColdStore()
    memory = build(store)
    sequence = memory.create()
    assert write_tokens(memory, SPEC, sequence, [], TEXT)
    first = memory.snapshot(sequence, "chat", "main", b"")
    assert len(first.blocks) == 8
    store.submit(first)
    assert memory.snapshot(sequence, "chat", "main", b"") is None
    assert write_tokens(memory, SPEC, sequence, TEXT, [5] * 10)
    second = memory.snapshot(sequence, "chat", "main", b"")
    assert len(second.blocks) == 2
    store.submit(second)


def test_blocks_being_written_outlive_their_sequence():
    store = MemoryColdStore()
    slab = build(store).breakdown().bytes_per_token * 16
    memory = build(store, budget=slab * 6)
    sequence = memory.create()
    assert write_tokens(memory, SPEC, sequence, [], TEXT)
    job = memory.snapshot(sequence, "chat", "main", b"")
    before = [bytes(block.payload) for block in job.blocks]
    memory.release(sequence)
    memory.clear()
    assert not memory.allocate([(memory.create(), 48)])
    assert [bytes(block.payload) for block in job.blocks] == before
    job.on_done(False)
    assert memory.allocate([(memory.create(), 48)])
    assert_consistent(memory)


def test_a_failed_write_is_offered_again():
    memory = build(MemoryColdStore())
    sequence = memory.create()
    assert write_tokens(memory, SPEC, sequence, [], TEXT)
    job = memory.snapshot(sequence, "chat", "main", b"")
    job.on_done(False)
    again = memory.snapshot(sequence, "chat", "main", b"")
    assert again is not None
    assert [block.hash for block in again.blocks] == [block.hash for block in job.blocks]


@pytest.mark.parametrize("codec", [KVCodec.F16, KVCodec.BF16, KVCodec.F32])
@pytest.mark.parametrize("block_size", [16, 32, 64])
def test_another_format_is_converted_and_not_read_again(codec, block_size):
    store = stored(codec=KVCodec.F32, block_size=32)
    memory = build(store, codec=codec, block_size=block_size)
    sequence, _, match = memory.restore(manifest_of(store))
    assert match.total == 75
    tolerance = {KVCodec.F32: 0.0, KVCodec.F16: 2e-3, KVCodec.BF16: 2e-2}[codec]
    assert_holds(memory, SPEC, sequence, TEXT, tolerance=tolerance)
    assert_consistent(memory)


def test_a_small_memory_takes_what_fits():
    store = stored()
    slab = build(store).breakdown().bytes_per_token * 16
    memory = build(store, budget=slab * 3)
    sequence, _, match = memory.restore(manifest_of(store))
    assert match.total <= 48
    assert_holds(memory, SPEC, sequence, TEXT[: match.total])
    assert_consistent(memory)


def test_a_damaged_block_ends_the_prefix_and_leaves_the_store():
    store = stored()
    memory = build(store)
    key = (SPEC.fingerprint, manifest_of(store).block_hashes[2])
    block = store.blocks[key]
    store.blocks[key] = replace(block, payload=b"\x01" + bytes(block.payload)[1:])
    sequence, _, match = memory.restore(manifest_of(store))
    assert (match.total, match.damaged) == (32, 1)
    assert key not in store.blocks
    assert_holds(memory, SPEC, sequence, TEXT[:32])


def test_swapped_payloads_are_noticed_though_their_checksums_fit():
    store = stored()
    left, right = (manifest_of(store).block_hashes[i] for i in (0, 1))
    one, two = (store.blocks[SPEC.fingerprint, h] for h in (left, right))
    store.blocks[SPEC.fingerprint, left] = replace(one, payload=two.payload, crc32=two.crc32)
    memory = build(store)
    _, _, match = memory.restore(manifest_of(store))
    assert (match.total, match.damaged) == (0, 1)


def test_a_manifest_of_another_model_is_refused():
    store = stored()
    memory = build(store, spec=tiny_spec(*SPEC.groups, fingerprint=b"other"))
    with pytest.raises(SnapshotError):
        memory.restore(manifest_of(store))


def test_only_a_branch_that_is_not_whole_is_looked_for():
    class Counting(MemoryColdStore):
        num_asked = 0

        def existing(self, fingerprint, hashes):
            self.num_asked += 1
            return super().existing(fingerprint, hashes)

    store, asked = stored(), Counting()
    asked.blocks = dict(store.blocks)
    assert build(asked).restore(manifest_of(store))[2].total == len(TEXT)
    assert asked.num_asked == 0
    del asked.blocks[list(asked.blocks)[1]]
    assert 0 < build(asked).restore(manifest_of(store))[2].total < len(TEXT)
    assert asked.num_asked == 1


def test_a_broken_store_costs_only_the_prefix():
    class Broken(MemoryColdStore):
        def existing(self, fingerprint, hashes):
            raise StoreError("locked")

        def read_blocks(self, fingerprint, hashes):
            raise StoreError("locked")

    store = stored()
    broken = Broken()
    broken.blocks = store.blocks
    memory = build(broken)
    assert memory.restore(manifest_of(store))[2].total == 0


def test_no_byte_of_a_manifest_can_be_changed_unnoticed():
    store = stored()
    manifest = manifest_of(store)
    rng = random.Random(1)
    for _ in range(300):
        body = bytearray(manifest.body)
        if rng.random() < 0.5:
            body[rng.randrange(len(body))] ^= rng.randrange(1, 256)
        else:
            del body[rng.randrange(len(body)) :]
        with pytest.raises(SnapshotError):
            session_log(replace(manifest, body=bytes(body)))


def test_every_corruption_of_a_block_leaves_a_true_prefix():
    rng = random.Random(2)
    for _ in range(100):
        store = stored()
        key = rng.choice(list(store.blocks))
        _corrupt(store, key, rng)
        memory = build(store)
        sequence, _, match = memory.restore(manifest_of(store))
        assert_holds(memory, SPEC, sequence, TEXT[: match.total])


def _corrupt(store, key, rng):
    block = store.blocks[key]
    payload = bytearray(block.payload)
    kind = rng.randrange(6)
    if kind == 0:
        payload[rng.randrange(len(payload))] ^= rng.randrange(1, 256)
    elif kind == 1:
        del payload[rng.randrange(len(payload)) :]
    elif kind == 2:
        del store.blocks[key]
        return
    elif kind == 3:
        block = rng.choice(list(store.blocks.values()))
        payload = bytearray(block.payload)
    elif kind == 4:
        block = replace(block, token_ids=bytes(len(block.token_ids)))
    else:
        block = replace(block, codec="int8")
    store.blocks[key] = replace(block, payload=bytes(payload))


def test_a_body_survives_the_round_trip():
    body = unpack_body(manifest_of(stored(log=b"\x00\xff")).body)
    assert unpack_body(body.pack()) == body
    assert (body.num_tokens, body.num_tail_tokens, body.log) == (75, 11, b"\x00\xff")
