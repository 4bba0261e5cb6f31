from __future__ import annotations

import random

import hypothesis.strategies as st
import torch
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.config import KVCodec
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.cold_store import MemoryColdStore
from engine.memory.interface import AttentionGroup, MemorySpec
from engine.memory.storage import StoredBlock
from engine.placement import Placement
from tests.engine.memory.naive import (
    assert_consistent,
    assert_holds,
    tiny_spec,
    write_tokens,
)

SPEC = tiny_spec(
    AttentionGroup((0, 2), num_key_value_heads=1, head_dim=2),
    AttentionGroup((1,), num_key_value_heads=2, head_dim=4),
)
WINDOWED = tiny_spec(
    AttentionGroup((0,), num_key_value_heads=1, head_dim=2),
    AttentionGroup((1,), num_key_value_heads=1, head_dim=4, window=20),
)
BLOCK_SIZE = 16
# The CPU as well, but another device by its name.
OTHER_DEVICE = torch.device("cpu:1")
NUM_BLOCKS = 24


def build(
    store: MemoryColdStore, codec: KVCodec, spec: MemorySpec, placement: Placement | None = None
) -> PagedAttentionMemory:
    probe = PagedAttentionMemory(spec, MemoryOptions(KVCodec.F32, BLOCK_SIZE, 0))
    budget = probe.breakdown().bytes_per_token * BLOCK_SIZE * NUM_BLOCKS
    warm = budget // 2 if spec is WINDOWED else 0
    options = MemoryOptions(
        codec, BLOCK_SIZE, budget, slack_tokens=0, warm_budget_bytes=warm, placement=placement
    )
    return PagedAttentionMemory(spec, options, store=store)


class MemoryMachine(RuleBasedStateMachine):
    """Every number of every sequence is what a list of tokens says it is, whatever happens."""

    spec = SPEC
    codec = KVCodec.F32
    tolerance = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryColdStore()
        self.memory = self.start()
        self.texts: dict[int, list[int]] = {}
        self.stored: dict[str, tuple[list[int], bytes]] = {}
        self.random = random.Random(0)

    def start(self) -> PagedAttentionMemory:
        return build(self.store, self.codec, self.spec)

    def pick(self, index: int) -> int:
        return list(self.texts)[index % len(self.texts)]

    @rule()
    def create(self):
        if len(self.texts) < 6:
            self.texts[self.memory.create()] = []

    @precondition(lambda self: self.texts)
    @rule(index=st.integers(0, 5), size=st.integers(1, 80), token=st.integers(0, 1))
    def feed(self, index, size, token):
        sequence = self.pick(index)
        new = [token] * size
        if write_tokens(self.memory, self.spec, sequence, self.texts[sequence], new):
            self.texts[sequence] = self.texts[sequence] + new

    @precondition(lambda self: self.texts)
    @rule(index=st.integers(0, 5), cut=st.integers(0, 50))
    def fork(self, index, cut):
        source = self.pick(index)
        length = max(0, len(self.texts[source]) - cut)
        fork = self.memory.fork(source, length)
        if fork is not None:
            self.texts[fork] = self.texts[source][:length]

    @precondition(lambda self: self.texts)
    @rule(index=st.integers(0, 5), cut=st.integers(0, 50))
    def truncate(self, index, cut):
        sequence = self.pick(index)
        length = max(0, len(self.texts[sequence]) - cut)
        reached = self.memory.truncate(sequence, length)
        self.check_reached(reached, length)
        self.texts[sequence] = self.texts[sequence][:reached]

    def check_reached(self, reached, length):
        assert reached == length or reached == length // BLOCK_SIZE * BLOCK_SIZE

    @precondition(lambda self: self.texts)
    @rule(index=st.integers(0, 5))
    def release(self, index):
        sequence = self.pick(index)
        self.memory.release(sequence)
        del self.texts[sequence]

    @precondition(lambda self: self.texts)
    @rule(index=st.integers(0, 5))
    def rest(self, index):
        self.memory.rest(self.pick(index))

    @precondition(lambda self: self.texts)
    @rule(index=st.integers(0, 5), other=st.integers(0, 5), extra=st.integers(0, 3))
    def attach(self, index, other, extra):
        """Continue one text along another that starts the same."""
        sequence, source = self.pick(index), self.pick(other)
        wanted = self.texts[source] + [2] * extra
        known = self.texts[sequence]
        if len(known) >= len(wanted) or wanted[: len(known)] != known:
            return
        match = self.memory.attach(sequence, wanted)
        assert len(known) <= match.total <= len(wanted) - 1
        self.texts[sequence] = wanted[: match.total]

    @precondition(lambda self: self.texts)
    @rule(index=st.integers(0, 5), name=st.sampled_from("abc"))
    def snapshot(self, index, name):
        sequence = self.pick(index)
        log = str(self.texts[sequence]).encode()
        job = self.memory.snapshot(sequence, name, "main", log)
        if job is not None:
            self.store.submit(job)
        self.stored[name] = (self.texts[sequence], log)

    @precondition(lambda self: self.stored)
    @rule(name=st.sampled_from("abc"))
    def restore(self, name):
        if name not in self.stored or len(self.texts) >= 6:
            return
        (manifest,) = self.store.read_manifests(self.spec.fingerprint, name)
        sequence, log, match = self.memory.restore(manifest)
        text, wanted_log = self.stored[name]
        assert log == wanted_log
        assert self.memory.length(sequence) == match.total <= len(text)
        self.texts[sequence] = text[: match.total]

    @rule()
    def restart(self):
        self.memory = self.start()
        self.texts = {}

    @precondition(lambda self: self.store.blocks)
    @rule(index=st.integers(0, 1000), at=st.integers(0, 1000), mask=st.integers(1, 255))
    def damage(self, index, at, mask):
        key = list(self.store.blocks)[index % len(self.store.blocks)]
        block = self.store.blocks[key]
        payload = bytearray(block.payload)
        payload[at % len(payload)] ^= mask
        self.store.blocks[key] = StoredBlock(
            block.hash, block.parent, block.token_ids, block.codec, bytes(payload), block.crc32
        )

    @invariant()
    def every_number_is_right(self):
        for sequence, text in self.texts.items():
            assert_holds(self.memory, self.spec, sequence, text, tolerance=self.tolerance)
        assert_consistent(self.memory)


class QuantisedMachine(MemoryMachine):
    """The same with blocks in two codecs."""

    codec = KVCodec.INT8
    tolerance = 0.03


class WindowedMachine(MemoryMachine):
    """The same with a warm tier, where blocks leave a window and may be lost for going back."""

    spec = WINDOWED

    def check_reached(self, reached, length):
        assert reached <= length


class QuantisedWindowedMachine(QuantisedMachine, WindowedMachine):
    """Both."""


class OffloadedMachine(QuantisedMachine):
    """Blocks in two codecs whose layers lie on other devices after every start."""

    num_starts = 0

    def start(self) -> PagedAttentionMemory:
        placement = Placement.of(3, OTHER_DEVICE, num_offloaded=(2, 1, 0, 3)[self.num_starts % 4])
        self.num_starts += 1
        return build(self.store, self.codec, self.spec, placement)


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
TestQuantised = QuantisedMachine.TestCase
TestQuantised.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
TestWindowed = WindowedMachine.TestCase
TestWindowed.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestQuantisedWindowed = QuantisedWindowedMachine.TestCase
TestQuantisedWindowed.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
TestOffloaded = OffloadedMachine.TestCase
TestOffloaded.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)
