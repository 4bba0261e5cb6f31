"""A damaged model file ends in a typed error or in a model that runs: never in a crash."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from engine.config import ChatMessage, EngineConfig, GenerateRequest, SamplingParams
from engine.engine import Engine
from engine.errors import EngineError
from engine.events import Finished

HEADER_BYTES = 64 << 10
NUM_DAMAGES = 100
CONFIG = EngineConfig(context_length=256, hot_budget_bytes=32 << 20, num_threads=1)


def answers_or_refuses(path: Path) -> bool:
    """Load and draw two tokens; False for a typed refusal. Everything else fails the test."""
    try:
        engine = Engine.load(path, CONFIG)
    except EngineError:
        return False
    try:
        request = GenerateRequest(
            "c", (ChatMessage("user", "Hi"),), SamplingParams(temperature=0.0), max_tokens=2
        )
        return isinstance(list(engine.generate(request))[-1], Finished)
    except EngineError:
        return False
    finally:
        engine.unload()


@pytest.mark.slow
def test_flipped_bytes_in_the_header_are_survived(smollm2_path: Path, tmp_path: Path):
    damaged = tmp_path / "damaged.gguf"
    shutil.copy(smollm2_path, damaged)
    rng = random.Random(1)
    with damaged.open("r+b") as file:
        for _ in range(NUM_DAMAGES // 2):
            position = rng.randrange(HEADER_BYTES)
            file.seek(position)
            before = file.read(1)
            file.seek(position)
            file.write(bytes([before[0] ^ (1 << rng.randrange(8))]))
            file.flush()
            answers_or_refuses(damaged)
            file.seek(position)
            file.write(before)
            file.flush()
    assert answers_or_refuses(damaged)


@pytest.mark.slow
def test_truncated_files_are_refused(smollm2_path: Path, tmp_path: Path):
    damaged = tmp_path / "damaged.gguf"
    data = smollm2_path.read_bytes()[:HEADER_BYTES]
    rng = random.Random(2)
    for _ in range(NUM_DAMAGES // 2):
        damaged.write_bytes(data[: rng.randrange(HEADER_BYTES)])
        assert not answers_or_refuses(damaged)
