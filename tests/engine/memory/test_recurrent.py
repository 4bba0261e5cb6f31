from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch

from engine.config import EngineConfig, KVCodec
from engine.errors import SnapshotError
from engine.memory.checkpoints import Checkpoint, CheckpointIndex, spaced
from engine.memory.cold_store import MemoryColdStore
from engine.memory.factory import build_memory
from engine.memory.hybrid import HybridMemory
from engine.memory.interface import AttentionGroup, MemorySpec, RecurrentState
from engine.memory.recurrent import RecurrentMemory
from engine.memory.sequence import to_bytes
from tests.engine.memory.naive import FINGERPRINT, assert_consistent, assert_holds, rows

STATE = RecurrentState((1, 3), (("conv", (2, 3)), ("ssm", (4,))))
GROUP = AttentionGroup((0, 2), 1, 4)
PURE = MemorySpec(FINGERPRINT, (), STATE)
HYBRID = MemorySpec(FINGERPRINT, (GROUP,), STATE)


def build(spec, *, store=None, budget=1 << 22):
    config = EngineConfig(block_size=16, kv_codec=KVCodec.F32, hot_budget_bytes=budget)
    return build_memory(spec, config, store=store)


def advance(state, token_id, layer):
    """A recurrence in which every token and its place leave a trace."""
    return state * 0.9 + torch.sin(torch.tensor(float(token_id * 7 + layer + 1)))


def expected_state(token_ids, layer, shape):
    state = torch.zeros(shape)
    for token_id in token_ids:
        state = advance(state, token_id, layer)
    return state


def feed(memory, spec, sequence, known, token_ids):
    """Run a forward pass over token_ids; False when there is no room."""
    if not memory.allocate([(sequence, len(token_ids))]):
        return False
    view = memory.step([(sequence, len(token_ids))])
    for group in spec.groups:
        for layer in group.layers:
            k, v = (rows(token_ids, len(known), layer, 1, 4, kind) for kind in (0, 1))
            view.attend(layer, k, k, v, scale=1.0)
    for layer in STATE.layers:
        for name, shape in STATE.shapes:
            (state,) = view.read_state(layer, name)
            torch.testing.assert_close(state, expected_state(known, layer, shape))
            for token_id in token_ids:
                state = advance(state, token_id, layer)
            view.write_state(layer, name, state[None])
    memory.commit(sequence, token_ids)
    return True


def assert_right(memory, spec, sequence, token_ids):
    """Check blocks and cells of a sequence."""
    assert memory.length(sequence) == len(token_ids)
    assert list(memory.token_ids(sequence)) == token_ids
    if isinstance(memory, HybridMemory):
        blocks, cells = memory._pairs[sequence]
        assert_holds(memory._attention, spec, blocks, token_ids)
        assert_consistent(memory._attention)
        memory, sequence = memory._recurrent, cells
    cell = memory._states[sequence].cell
    for layer in STATE.layers:
        for name, shape in STATE.shapes:
            held = memory._layout.part(cell, layer, name)
            torch.testing.assert_close(held, expected_state(token_ids, layer, shape))


def test_the_kind_follows_from_the_specification():
    assert isinstance(build(PURE), RecurrentMemory)
    assert isinstance(build(HYBRID), HybridMemory)


@pytest.mark.parametrize("spec", [PURE, HYBRID])
def test_truncate_goes_back_to_a_kept_state(spec):
    memory = build(spec)
    sequence = memory.create()
    text = list(range(70))
    assert feed(memory, spec, sequence, [], text[:40])
    for at in range(40, 70):
        assert feed(memory, spec, sequence, text[:at], [text[at]])
    assert memory.truncate(sequence, 69) == 64
    assert_right(memory, spec, sequence, text[:64])
    assert memory.truncate(sequence, 47) == 40
    assert memory.truncate(sequence, 39) == 0
    assert feed(memory, spec, sequence, [], [9])


@pytest.mark.parametrize("spec", [PURE, HYBRID])
def test_an_edit_elsewhere_leaves_checkpoints_alone(spec):
    memory = build(spec)
    sequence = memory.create()
    assert feed(memory, spec, sequence, [], [1] * 30)
    fork = memory.fork(sequence, 30)
    assert feed(memory, spec, sequence, [1] * 30, [2] * 20)
    assert memory.truncate(sequence, 30) == 30
    assert feed(memory, spec, sequence, [1] * 30, [3])
    assert_right(memory, spec, fork, [1] * 30)
    assert memory.fork(fork, 29) is None
    # The open block of the text given up is gone, so a hybrid goes on from the state before it.
    reached = 50 if spec is PURE else 30
    again = memory.create()
    assert memory.attach(again, [1] * 30 + [2] * 21).total == reached
    assert_right(memory, spec, again, ([1] * 30 + [2] * 20)[:reached])


@pytest.mark.parametrize("spec", [PURE, HYBRID])
def test_a_step_that_comes_to_nothing_changes_nothing(spec):
    memory = build(spec)
    sequence = memory.create()
    assert feed(memory, spec, sequence, [], [4] * 5)
    assert memory.allocate([(sequence, 1)])
    view = memory.step([(sequence, 1)])
    view.write_state(1, "ssm", torch.ones(1, 4))
    assert_right(memory, spec, sequence, [4] * 5)
    assert feed(memory, spec, sequence, [4] * 5, [6])


@pytest.mark.parametrize("spec", [PURE, HYBRID])
def test_a_restored_chat_goes_on_and_can_go_back(spec):
    store = MemoryColdStore()
    memory = build(spec, store=store)
    sequence = memory.create()
    text = [5] * 40 + [6] * 20
    assert feed(memory, spec, sequence, [], text[:32])
    assert feed(memory, spec, sequence, text[:32], text[32:40])
    memory.checkpoint(sequence)
    assert feed(memory, spec, sequence, text[:40], text[40:])
    job = memory.snapshot(sequence, "chat", "main", b"log")
    store.submit(job)
    assert memory.snapshot(sequence, "chat", "main", b"log") is None
    again = build(spec, store=store)
    restored, log, match = again.restore(store.read_manifests(FINGERPRINT, "chat")[0])
    assert (log, match.cold) == (b"log", 60)
    assert_right(again, spec, restored, text)
    assert again.truncate(restored, 59) == 40
    assert_right(again, spec, restored, text[:40])
    assert again.truncate(restored, 39) == 32
    assert_right(again, spec, restored, text[:32])


@pytest.mark.parametrize("spec", [PURE, HYBRID])
def test_no_state_is_written_twice(spec):
    store = MemoryColdStore()
    memory = build(spec, store=store)
    sequence = memory.create()
    text = [5] * 64
    for at in range(0, 64, 16):
        assert feed(memory, spec, sequence, text[:at], text[at : at + 16])
        job = memory.snapshot(sequence, "chat", "main", b"")
        states = [block for block in job.blocks if block.codec == "state"]
        assert len(states) == (at > 0)  # all but the present state, which the manifest holds
        store.submit(job)


@pytest.mark.parametrize("spec", [PURE, HYBRID])
def test_another_chat_finds_the_stored_states_of_a_common_beginning(spec):
    store = MemoryColdStore()
    memory = build(spec, store=store)
    sequence = memory.create()
    text = [5] * 48
    for at in range(0, 48, 16):
        assert feed(memory, spec, sequence, text[:at], text[at : at + 16])
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    again = build(spec, store=store)
    other = again.create()
    assert again.attach(other, [*text[:40], 9, 9]).total == 32
    assert_right(again, spec, other, text[:32])


def test_a_damaged_stored_state_is_left_out():
    store = MemoryColdStore()
    memory = build(PURE, store=store)
    sequence = memory.create()
    for at in range(0, 48, 16):
        assert feed(memory, PURE, sequence, [5] * at, [5] * 16)
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    for key, block in list(store.blocks.items()):
        payload = bytearray(block.payload)
        payload[3] ^= 1
        store.blocks[key] = replace(block, payload=bytes(payload))
    again = build(PURE, store=store)
    restored, _, match = again.restore(store.read_manifests(FINGERPRINT, "chat")[0])
    assert match.total == 48
    assert again.truncate(restored, 40) == 0
    assert not store.blocks


def test_damaged_states_are_refused():
    store = MemoryColdStore()
    memory = build(PURE, store=store)
    sequence = memory.create()
    assert feed(memory, PURE, sequence, [], [5] * 40)
    store.submit(memory.snapshot(sequence, "chat", "main", b""))
    manifest = store.read_manifests(FINGERPRINT, "chat")[0]
    rng = random.Random(0)
    for _ in range(100):
        body = bytearray(manifest.body)
        body[rng.randrange(len(body))] ^= rng.randrange(1, 256)
        with pytest.raises(SnapshotError):
            build(PURE).restore(replace(manifest, body=bytes(body)))


def test_a_batch_writes_each_cell_of_its_own():
    memory = build(PURE)
    sequences = [memory.create(), memory.create()]
    batch = [(sequence, 1) for sequence in sequences]
    view = memory.step(batch)
    states = torch.arange(8.0).view(2, 4)
    view.write_state(1, "ssm", states)
    assert torch.equal(view.read_state(1, "ssm"), states)
    assert not view.read_state(3, "ssm").any()


def test_checkpoints_over_budget_go_longest_unused_first():
    index = CheckpointIndex(16, b"salt", budget_bytes=3 * 40)
    texts = [to_bytes([n] * 20) for n in range(4)]
    for text in texts[:3]:
        index.add(text, torch.zeros(10))
    assert index.find(texts[0]) is not None
    index.add(texts[3], torch.zeros(10))
    assert [index.find(text) is not None for text in texts] == [True, False, True, True]
    assert index.used_bytes == 120


def positions(index, text):
    return [checkpoint.position for checkpoint in index.path(to_bytes(text))]


def test_over_budget_checkpoints_thin_out_and_borders_stay():
    index = CheckpointIndex(16, b"salt", budget_bytes=24 * 40)
    text = list(range(4096))
    borders = (64, 1000, 2500, 4000)
    for end in sorted({*range(16, 4097, 16), *borders}):
        index.add(to_bytes(text[:end]), torch.zeros(10), is_border=end in borders)
    kept = positions(index, text)
    assert len(kept) == len(index) == 24
    assert set(borders) <= set(kept)
    assert kept[:4] == [4096, 4080, 4064, 4048]
    for later, earlier in itertools.pairwise(kept):
        assert later - earlier <= max(16, (4096 - earlier) / 2)


def test_writing_in_one_branch_takes_no_other_branch_away():
    index = CheckpointIndex(16, b"salt", budget_bytes=32 * 40)
    first = list(range(1024))
    for end in range(16, 1025, 16):
        index.add(to_bytes(first[:end]), torch.zeros(10), is_border=end % 256 == 0)
    other = first[:256]
    for number in range(32):
        other = [*other, *[9000 + number] * 16]
        index.add(to_bytes(other), torch.zeros(10))
    assert positions(index, first)[0] == 1024
    assert {256, 512, 768, 1024} <= set(positions(index, first))
    assert positions(index, other)[0] == len(other)


def test_what_nobody_uses_goes_in_the_end():
    index = CheckpointIndex(16, b"salt", budget_bytes=8 * 40)
    index.add(to_bytes([7] * 4000), torch.zeros(10), is_border=True)
    for number in range(400):
        index.add(to_bytes([number] * 32), torch.zeros(10), is_border=True)
    assert index.find(to_bytes([7] * 4000)) is None
    assert index.used_bytes == 8 * 40


def test_a_state_between_others_is_put_between_them():
    index = CheckpointIndex(16, b"salt", budget_bytes=3 * 40)
    text = list(range(64))
    for end in (16, 64, 32):
        index.add(to_bytes(text[:end]), torch.zeros(10))
    index.find(to_bytes(text))
    index.add(to_bytes(text[:48]), torch.zeros(10))
    assert positions(index, text) == [64, 48, 32]


def test_stored_checkpoints_lie_further_apart_the_older_they_are():
    def chosen(length, num_kept):
        path = [Checkpoint(at, torch.zeros(1), at == 7) for at in range(length, 0, -1)]
        return [checkpoint.position for checkpoint in spaced(path, 1, num_kept)]

    steps = chosen(100, 99)
    assert steps[:17] == list(range(100, 83, -1))
    assert steps[17:] == [82, 80, 78, 76, 74, 72, 70, 68, *range(64, 32, -4), *range(32, 7, -8), 7]
    assert chosen(100, 3) == [100, 99, 7]
    for length in range(2, 100):
        assert set(chosen(length, 99)) <= {*chosen(length - 1, 99), length}


class Play:
    """Random actions on a memory; texts is what each sequence must hold."""

    def __init__(self, spec, seed):
        self.spec = spec
        self.rng = random.Random(seed)
        self.store = MemoryColdStore()
        self.restart()
        self.new()

    def restart(self):
        self.memory = build(self.spec, store=self.store, budget=40_000)
        self.texts = {}

    def act(self):
        names = ["feed", "feed", "fork", "truncate", "release", "new", "save", "load"]
        getattr(self, self.rng.choice(names))()
        for sequence, text in self.texts.items():
            assert_right(self.memory, self.spec, sequence, text)

    def pick(self):
        return self.rng.choice(list(self.texts.items()))

    def feed(self):
        sequence, text = self.pick()
        new = [self.rng.randrange(2)] * self.rng.choice([1, 1, 5, 30])
        if feed(self.memory, self.spec, sequence, text, new):
            self.texts[sequence] = text + new

    def fork(self):
        source, text = self.pick()
        length = self.rng.randint(0, len(text))
        fork = self.memory.fork(source, length)
        if fork is not None:
            self.texts[fork] = text[:length]

    def truncate(self):
        sequence, text = self.pick()
        length = self.rng.randint(0, len(text))
        reached = self.memory.truncate(sequence, length)
        assert reached <= length
        self.texts[sequence] = text[:reached]

    def release(self):
        if len(self.texts) > 3:
            sequence, _ = self.pick()
            self.memory.release(sequence)
            del self.texts[sequence]

    def new(self):
        text = self.pick()[1] if self.texts else []
        created = self.memory.create()
        match = self.memory.attach(created, [*text, 9])
        self.texts[created] = text[: match.total]

    def save(self):
        sequence, _ = self.pick()
        job = self.memory.snapshot(sequence, "chat", "main", b"")
        if job is not None:
            self.store.submit(job)

    def load(self):
        for manifest in self.store.read_manifests(FINGERPRINT, "chat"):
            if self.rng.random() < 0.3:
                self.restart()
            restored, _, match = self.memory.restore(manifest)
            self.texts[restored] = list(self.memory.token_ids(restored))
            assert len(self.texts[restored]) == match.total


@pytest.mark.parametrize("spec", [PURE, HYBRID])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_blocks_and_cells_belong_to_the_text(spec, seed):
    play = Play(spec, seed)
    for _ in range(100):
        play.act()
