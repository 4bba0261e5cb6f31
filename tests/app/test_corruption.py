"""A damaged kv.db under a real engine: conversations go on as if nothing had been stored.

REPRISE_FUZZ_CASES says how many files are damaged, from REPRISE_FUZZ_FIRST on; 500 is the full
size.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.store.kv_store import KVStore
from engine.config import ChatMessage, EngineConfig, GenerateRequest, KVCodec, SamplingParams
from engine.engine import Engine
from engine.events import Finished
from tests.app.store.kv_harms import HARMS
from tests.app.waiting import WAIT_S
from tests.engine.tiny_models import TinyModel, write_tiny_model

NUM_CASES = int(os.environ.get("REPRISE_FUZZ_CASES", "10"))
FIRST_CASE = int(os.environ.get("REPRISE_FUZZ_FIRST", "0"))
CHATS = ("harbour", "orchard", "station")
BUDGET_BYTES = 1 << 26
CONFIG = EngineConfig(
    block_size=16,
    kv_codec=KVCodec.F32,
    hot_budget_bytes=8 << 20,
    num_threads=1,
    prefill_chunk=64,
    compute="float32",
    kernels=False,
)


@dataclass(frozen=True)
class Sound:
    """A sound file, the model it belongs to, the histories in it and their next replies."""

    model: Path
    data: bytes
    histories: dict[str, tuple[ChatMessage, ...]]
    prompts: dict[str, list[int]]
    replies: dict[str, tuple[int, ...]]


def opening(name: str) -> tuple[ChatMessage, ...]:
    facts = " ".join(f"The {name} has number {number}{name[0]}." for number in range(6))
    return (
        ChatMessage("system", "You answer in short sentences and keep every secret you are told."),
        ChatMessage("user", f"My secret place is the {name}. {facts}"),
    )


def ask(
    engine: Engine, name: str, messages: tuple[ChatMessage, ...], *, ephemeral: bool = False
) -> tuple[str, Finished]:
    request = GenerateRequest(
        name,
        messages,
        sampling=SamplingParams(temperature=0.0),
        max_tokens=12,
        ephemeral=ephemeral,
    )
    events = list(engine.generate(request))
    assert isinstance(events[-1], Finished)
    return "".join(getattr(event, "text", "") for event in events), events[-1]


def context(engine: Engine, name: str, finished: Finished) -> list[int]:
    """Return the tokens that the reply was drawn behind."""
    session = max(engine._pool.sessions(name), key=lambda session: session.last_used)
    assert session.sequence is not None
    memory = engine._loaded.memory
    held = list(memory.token_ids(session.sequence))
    assert held == session.token_ids[: len(held)]
    return session.token_ids[: finished.usage.prompt_tokens]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    folder = tmp_path_factory.mktemp("sound")
    model = write_tiny_model(folder / "tiny.gguf")
    other = write_tiny_model(folder / "other.gguf", TinyModel(seed=1))
    path = folder / "kv.db"
    histories, prompts, replies = {}, {}, {}
    for gguf in (other, model):
        store = KVStore(path, BUDGET_BYTES)
        engine = Engine.load(gguf, CONFIG, store=store)
        for name in CHATS:
            text, _ = ask(engine, name, opening(name))
            histories[name] = (
                *opening(name),
                ChatMessage("assistant", text),
                ChatMessage("user", "What is my secret place?"),
            )
        engine.unload()
        assert store.close(WAIT_S)
    data = path.read_bytes()
    store = KVStore(path, BUDGET_BYTES)
    engine = Engine.load(model, CONFIG, store=store)
    for name in CHATS:
        _, finished = ask(engine, name, histories[name])
        assert finished.usage.reused.cold > 64
        prompts[name], replies[name] = context(engine, name, finished), finished.token_ids
    engine.unload()
    assert store.close(WAIT_S)
    return Sound(model, data, histories, prompts, replies)


def test_whatever_happens_to_the_file_conversations_go_on_unchanged(sound, tmp_path):
    reused: Counter[str] = Counter()
    for seed in range(FIRST_CASE, FIRST_CASE + NUM_CASES):
        dice = random.Random(seed)
        harm = HARMS[seed % len(HARMS)]
        path = tmp_path / f"{seed}.db"
        path.write_bytes(sound.data)
        with suppress(sqlite3.Error):
            harm(path, dice)
        reused[harm.__name__] += converse(sound, path)
        for part in tmp_path.iterdir():
            part.unlink()
    print("tokens reused after", dict(reused))


def converse(sound: Sound, path: Path) -> int:
    """Ask every conversation's next question; return how many tokens needed no reading."""
    store = KVStore(path, BUDGET_BYTES)
    engine = Engine.load(sound.model, CONFIG, store=store)
    num_reused = 0
    for name in CHATS:
        _, finished = ask(engine, name, sound.histories[name])
        read = context(engine, name, finished)
        # A stored log that is gone is rendered anew, and generated tokens may be spelt otherwise.
        if read == sound.prompts[name]:
            assert finished.token_ids == sound.replies[name]
        else:
            assert read == engine.prompt_token_ids(sound.histories[name])
            assert finished.token_ids == read_anew(sound, name)
        num_reused += finished.usage.reused.total
    engine.unload()
    assert store.close(WAIT_S)
    return num_reused


def read_anew(sound: Sound, name: str) -> tuple[int, ...]:
    engine = Engine.load(sound.model, CONFIG)
    _, finished = ask(engine, name, sound.histories[name])
    engine.unload()
    return finished.token_ids
