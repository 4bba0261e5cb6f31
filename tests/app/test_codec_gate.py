"""The gate of K/V formats: measured once, refused where it loses too much, unless forced."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.codec_gate import (
    NUM_TOKENS,
    TEXT,
    CodecGate,
    CodecRefusedError,
    measure_codec,
)
from app.events import CodecAccuracy
from engine.config import EngineConfig, KVCodec
from engine.engine import Engine
from tests.engine.tiny_models import write_tiny_model

GOOD = CodecAccuracy("int8", 256, nll_change=0.0005, top1=0.992, kl=0.0003)


def engine_with(codec: str) -> SimpleNamespace:
    info = SimpleNamespace(
        kv_codec=codec, name="Tiny", fingerprint="ab", block_size=32, compute="kernels avx2"
    )
    return SimpleNamespace(info=info)


class Measuring:
    """Gives one result and counts how often it was asked."""

    def __init__(self, accuracy: CodecAccuracy) -> None:
        self.accuracy = accuracy
        self.count = 0

    def __call__(self, engine: object, codec: KVCodec, watch: object) -> CodecAccuracy:
        self.count += 1
        return replace(self.accuracy, codec=codec.value)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "cache" / "codecs.json"


def test_exact_formats_are_not_measured(path):
    measure = Measuring(GOOD)
    for codec in ("f16", "bf16", "f32"):
        assert CodecGate(path).check(engine_with(codec), is_forced=False, measure=measure) is None
    assert measure.count == 0


def test_a_format_is_measured_once_per_model(path):
    measure = Measuring(GOOD)
    for _ in range(2):
        found = CodecGate(path).check(engine_with("int8"), is_forced=False, measure=measure)
        assert found == GOOD
    assert measure.count == 1
    other = engine_with("int8")
    other.info.fingerprint = "cd"
    CodecGate(path).check(other, is_forced=False, measure=measure)
    assert measure.count == 2


@pytest.mark.parametrize(
    ("codec", "accuracy", "is_good"),
    [
        ("int8", replace(GOOD, top1=0.98), True),
        ("int8", replace(GOOD, top1=0.979), False),
        ("k8v4", replace(GOOD, top1=0.94, nll_change=0.015, kl=0.02), True),
        ("k8v4", replace(GOOD, nll_change=0.016), False),
        ("k8v4", replace(GOOD, kl=0.021), False),
    ],
)
def test_the_limits(path, codec, accuracy, is_good):
    measure = Measuring(accuracy)
    gate, engine = CodecGate(path), engine_with(codec)
    if is_good:
        assert gate.check(engine, is_forced=False, measure=measure).codec == codec
    else:
        with pytest.raises(CodecRefusedError) as caught:
            gate.check(engine, is_forced=False, measure=measure)
        assert f"{accuracy.top1:.1%}" in str(caught.value)
        assert caught.value.accuracy.kl == accuracy.kl
        assert gate.check(engine, is_forced=True, measure=measure).codec == codec
        assert measure.count == 1


@pytest.mark.parametrize("text", ["nonsense", "{}", '{"version": 2, "measured": {"x": {}}}'])
def test_a_damaged_memory_of_numbers_is_measured_anew(path, text):
    path.parent.mkdir()
    path.write_text(text)
    measure = Measuring(GOOD)
    CodecGate(path).check(engine_with("int8"), is_forced=False, measure=measure)
    assert measure.count == 1
    assert json.loads(path.read_text())["version"] == 2


def test_a_real_engine_is_measured_over_the_whole_text(tmp_path):
    model = write_tiny_model(tmp_path / "tiny.gguf")
    engine = Engine.load(model, EngineConfig(kv_codec=KVCodec.INT8, num_threads=1))
    try:
        assert len(engine.token_ids(TEXT)) > NUM_TOKENS
        told: list[float] = []
        accuracy = measure_codec(engine, KVCodec.INT8, told.append)
    finally:
        engine.unload()
    assert accuracy.num_tokens == NUM_TOKENS
    assert 0.5 < accuracy.top1 <= 1.0
    assert accuracy.kl > 0.0
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)
    assert len(told) == 9, "eight passes through the model"
