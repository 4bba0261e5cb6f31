from __future__ import annotations

import random

import pytest

from engine.config import KVCodec
from engine.memory.attention import MemoryOptions, PagedAttentionMemory
from engine.memory.cold_store import MemoryColdStore
from engine.memory.interface import AttentionGroup
from tests.engine.memory.naive import assert_consistent, assert_holds, tiny_spec, write_tokens

SPEC = tiny_spec(AttentionGroup((0,), num_key_value_heads=1, head_dim=2))
NUM_CHATS = 20
SYSTEM = [99] * 40


class Chats:
    """Twenty conversations with one beginning; after it every token tells whose it is."""

    def __init__(self, codec, rng):
        self.codec = codec
        self.rng = rng
        self.store = MemoryColdStore()
        self.texts = {name: list(SYSTEM) for name in range(NUM_CHATS)}
        self.restart()

    def restart(self):
        probe = PagedAttentionMemory(SPEC, MemoryOptions(KVCodec.F32, 16, 0))
        options = MemoryOptions(self.codec, 16, probe.breakdown().bytes_per_token * 16 * 40)
        self.memory = PagedAttentionMemory(SPEC, options, store=self.store)
        self.open = {}

    def switch_to(self, name):
        """Continue a chat, from memory or the store, with a token or a paragraph."""
        sequence = self.open.get(name)
        if sequence is None:
            sequence = self.memory.create()
        text = self.texts[name]
        if self.memory.length(sequence) < len(text):
            self.memory.attach(sequence, [*text, -1])
        held = self.memory.length(sequence)
        new = [*text[held:], *[name] * self.rng.choice([1, 2, 25])]
        if not write_tokens(self.memory, SPEC, sequence, text[:held], new):
            self.memory.release(sequence)
            self.open.pop(name, None)
            self.evict()
            return
        self.open[name] = sequence
        self.texts[name] = text[:held] + new
        tolerance = 0.0 if self.codec is KVCodec.F32 else 0.03
        assert_holds(self.memory, SPEC, sequence, self.texts[name], tolerance=tolerance)
        if len(self.texts[name]) > 250:
            self.start_anew(name)

    def start_anew(self, name):
        self.memory.truncate(self.open[name], 45)
        self.texts[name] = self.texts[name][:45]

    def evict(self):
        for name in self.rng.sample(list(self.open), len(self.open) // 2):
            self.save(name)
            self.memory.release(self.open.pop(name))

    def save(self, name):
        job = self.memory.snapshot(self.open[name], str(name), "main", b"")
        if job is not None:
            self.store.submit(job)


@pytest.mark.parametrize("codec", [KVCodec.F32, KVCodec.INT8])
def test_no_chat_ever_sees_anything_of_another(codec):
    rng = random.Random(11)
    chats = Chats(codec, rng)
    for _ in range(500):
        chance = rng.random()
        if chance < 0.02:
            chats.restart()
        elif chance < 0.15 and chats.open:
            chats.evict()
        else:
            chats.switch_to(rng.randrange(NUM_CHATS))
    assert_consistent(chats.memory)
