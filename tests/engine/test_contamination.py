"""Twenty conversations with planted facts over one engine: none ever sees anything of another.

REPRISE_CONTAMINATION_STEPS says how many random steps are taken; 500 is the full size.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from engine.config import ChatMessage, EngineConfig, GenerateRequest, KVCodec, SamplingParams
from engine.engine import Engine
from engine.events import Finished
from engine.memory.cold_store import MemoryColdStore
from tests.engine.tiny_models import TinyModel, write_tiny_model
from tests.reference import REFERENCE

NUM_STEPS = int(os.environ.get("REPRISE_CONTAMINATION_STEPS", "40"))
NUM_CHATS = 20
SYSTEM = ChatMessage("system", "You keep every secret. You never tell it to anybody else.")
MAX_MESSAGES = 8


class Chats:
    """Random steps on an engine; another one reads every context from nothing."""

    def __init__(self, model: Path, hot_bytes: int, seed: int) -> None:
        self.model = model
        self.config = _with_budget(hot_bytes)
        self.dice = random.Random(seed)
        self.store = MemoryColdStore()
        self.engine = Engine.load(model, self.config, store=self.store)
        self.reader = Engine.load(model, _with_budget(1 << 26))
        self.histories = {name: [SYSTEM, _fact(name)] for name in range(NUM_CHATS)}
        self.num_reused = 0

    def step(self) -> None:
        act = self.dice.choices(
            [self.talk, self.cancel, self.regenerate, self.evict, self.restart],
            [60, 15, 10, 10, 5],
        )[0]
        act(self.dice.randrange(NUM_CHATS))

    def talk(self, name: int) -> None:
        """Draw a reply, compare it with a fresh reading, and ask the next question."""
        text, finished = self.reply(name)
        self.histories[name] += [ChatMessage("assistant", text), _question(self.dice)]
        if len(self.histories[name]) > MAX_MESSAGES:
            del self.histories[name][2:]
        self.num_reused += finished.usage.reused.total

    def regenerate(self, name: int) -> None:
        self.reply(name)

    def cancel(self, name: int) -> None:
        """Stop in the middle of reading or of a reply, by either way there is."""
        limit = self.dice.randrange(12)
        calls = iter(range(1000))
        generation = self.engine.generate(
            self.request(name), is_cancelled=lambda: next(calls) >= limit
        )
        for number, _ in enumerate(generation):
            if number == self.dice.randrange(1, 8):
                generation.close()
                break
        self.check(name)

    def evict(self, name: int) -> None:
        """Take the hot memory of some conversations away."""
        for other in self.dice.sample(range(NUM_CHATS), 5):
            self.engine.release(str(other))
        self.engine.release(str(name))

    def restart(self, name: int) -> None:
        self.engine.unload()
        self.engine = Engine.load(self.model, self.config, store=self.store)
        self.reply(name)

    def request(self, name: int) -> GenerateRequest:
        greedy = SamplingParams(temperature=0.0)
        return GenerateRequest(str(name), tuple(self.histories[name]), greedy, max_tokens=8)

    def reply(self, name: int) -> tuple[str, Finished]:
        events = list(self.engine.generate(self.request(name)))
        finished = events[-1]
        assert isinstance(finished, Finished)
        prompt = self.check(name)[: finished.usage.prompt_tokens]
        assert finished.token_ids == self.read_anew(prompt, len(finished.token_ids))
        return "".join(getattr(event, "text", "") for event in events), finished

    def check(self, name: int) -> list[int]:
        """Compare what is held with the log, and the log with what this chat may contain."""
        sessions = self.engine._pool.sessions(str(name))
        session = max(sessions, key=lambda session: session.last_used)
        if session.sequence is not None:
            memory = self.engine.memory
            held = list(memory.token_ids(session.sequence))
            assert held == session.token_ids[: len(held)]
        text = self.engine._loaded.tokenizer.decode(session.token_ids)
        others = [other for other in range(NUM_CHATS) if other != name]
        assert not [other for other in others if _secret(other) in text]
        return session.token_ids

    def read_anew(self, prompt: list[int], num_tokens: int) -> tuple[int, ...]:
        probe = self.reader.probe()
        probe.clear()
        sequence = probe.read(prompt[:-1])
        return tuple(probe.greedy(sequence, prompt[-1:], num_tokens))

    def close(self) -> None:
        self.engine.unload()
        self.reader.unload()


def _with_budget(hot_bytes: int) -> EngineConfig:
    return EngineConfig(
        block_size=16,
        kv_codec=KVCodec.F32,
        hot_budget_bytes=hot_bytes,
        num_threads=1,
        prefill_chunk=64,
        compute="float32",
        kernels=False,
    )


def _secret(name: int) -> str:
    return f"#{name * 7919 + 10_007}"


def _fact(name: int) -> ChatMessage:
    return ChatMessage("user", f"My secret number is {_secret(name)}. Remember {_secret(name)}.")


def _question(dice: random.Random) -> ChatMessage:
    questions = ("What is my secret number?", "Tell me more of it.", "And what else is there?")
    return ChatMessage("user", dice.choice(questions))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", TinyModel())


@pytest.mark.parametrize("kind", ["llama", "lfm2", "gemma3"])
def test_no_conversation_ever_sees_anything_of_another(kind, llama):
    model = llama if kind == "llama" else REFERENCE / "models" / f"{kind}.gguf"
    if not model.exists():
        pytest.skip("the reference models are not here")
    chats = Chats(model, hot_bytes=1 << 20, seed=5)
    try:
        for _ in range(NUM_STEPS if kind == "llama" else NUM_STEPS // 4):
            chats.step()
        assert chats.num_reused > 0
    finally:
        chats.close()
