"""The speed bench over a made-up model, and that model as both engines open it."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from app.bench import bandwidth, speed, synthetic
from app.bench.bandwidth import measure_bandwidth
from app.bench.process import BenchProcess
from app.bench.speed import SpeedOptions, measure_speed
from app.bench.synthetic import Shape, SyntheticModelError, synthetic_model, write_synthetic
from app.cli import parse, run
from app.paths import app_paths
from engine.config import EngineConfig
from engine.engine import Engine
from engine.ggml_type import GGMLType
from engine.gguf_file import GGUFFile
from tests.app.test_bench import InProcess

TINY = Shape(2, 256, 512, 4, 2, 30000, context_length=1024)


@pytest.fixture
def tiny_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.SHAPES, "1b", TINY)
    monkeypatch.setattr(speed, "BenchProcess", InProcess)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "deeper" / "synthetic.gguf"
    write_synthetic(path, TINY)
    return path


def test_a_made_up_model_is_a_sound_file_of_sane_weights(tmp_path):
    write_synthetic(tmp_path / "m.gguf", replace(TINY, vocab_size=512))
    reader = gguf.GGUFReader(tmp_path / "m.gguf")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert len(tensors) == 2 + 9 * TINY.num_layers
    matrix = tensors["blk.1.ffn_down.weight"]
    assert matrix.tensor_type is gguf.GGMLQuantizationType.Q4_K
    weights = gguf.quants.dequantize(matrix.data, matrix.tensor_type)
    assert weights.shape == (TINY.hidden_size, TINY.intermediate_size)
    assert np.std(weights) == pytest.approx(TINY.intermediate_size**-0.5, rel=0.05)
    assert abs(np.mean(weights)) < 0.02 * np.std(weights)


def test_a_made_up_model_runs_on_the_kernels(model):
    engine = Engine.load(model, EngineConfig(num_threads=1, context_length=256))
    probe = engine.probe()
    (logits,) = probe.logits([1, 2000, 3000], chunk=4)
    assert bool(logits.isfinite().all())
    assert 0.1 < float(logits.std()) < 10.0
    assert "kernels" in engine.info.compute
    engine.unload()


@pytest.mark.slow
def test_llama_cpp_opens_a_made_up_model(model):
    pytest.importorskip("xllamacpp")
    with BenchProcess("peer") as peer:
        peer.ask("load", model=str(model), threads=1, context_length=256)
        assert peer.ask("decode", token_ids=[1, 2000, 3000], num_tokens=3)["tokens_per_second"] > 0


def test_speed_rows_name_what_was_measured(tiny_shape, model):
    options = SpeedOptions(
        model, 1, False, 1, (40,), (30, 20), ("int8",), num_decoded=2, buffer_bytes=1 << 20
    )
    rows = {row.name: row.to_json() for row in measure_speed(options, print).rows}
    names = ["prefill_40", "decode_at_30", "decode_at_20", "decode_at_20_top_40"]
    assert list(rows) == [*names, "weights_bandwidth", "load", "resident_mb", "decode_at_30_int8"]
    drawn = rows["decode_at_20_top_40"]
    assert drawn["greedy"] > 0
    assert drawn["of_whole"] == pytest.approx(drawn["ours"] / drawn["whole"])
    memory, decoded = rows["weights_bandwidth"], rows["decode_at_30"]["ours"]
    per_second = memory["weights_gb_per_second"]
    assert per_second == pytest.approx(memory["weights_gb_per_token"] * decoded)
    assert memory["ours"] == pytest.approx(per_second / memory["copied_gb_per_second"])
    assert memory["of_reading"] == pytest.approx(per_second / memory["read_gb_per_second"])
    tensors = GGUFFile.open(model).tensors.values()
    in_file = sum(tensor.num_bytes for tensor in tensors if tensor.type is GGMLType.Q4_K)
    assert memory["weights_gb_per_token"] == pytest.approx(in_file / 1e9)
    packed = rows["decode_at_30_int8"]
    assert packed["of_f16"] == pytest.approx(packed["ours"] / packed["f16"])


def test_the_command_makes_a_model_up_and_removes_it(tiny_shape, capsys, monkeypatch):
    monkeypatch.setattr("app.commands.bench.measure_speed", lambda options, say: _Looked(options))
    for is_kept in (True, False):
        keep = ["--keep"] if is_kept else []
        arguments = ["bench", "speed", "--synthetic", "1b", *keep]
        assert run(arguments, open_window=lambda files: 1) == 0
        assert "found synthetic-1b.gguf" in capsys.readouterr().out
        left = [path.name for path in app_paths().synthetic_models.iterdir()]
        assert left == (["synthetic-1b.gguf"] if is_kept else [])


def test_every_size_can_be_asked_for():
    for name in synthetic.SHAPES:
        assert parse(["bench", "speed", "--synthetic", name]).synthetic == name
    with pytest.raises(SystemExit):
        parse(["bench", "speed", "--synthetic", "huge"])


def test_what_a_made_up_model_says_is_not_measured(capsys):
    assert run(["bench", "batch", "--synthetic", "1b"], open_window=lambda files: 1) == 1
    assert "Only the speed" in capsys.readouterr().err


def test_a_full_disk_is_said_and_leaves_nothing(tiny_shape, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(9, 9, 1 << 20))
    with (
        pytest.raises(SyntheticModelError, match="room") as refused,
        synthetic_model(tmp_path / "models", "1b", is_kept=False),
    ):
        pass
    assert "MiB are needed, 1 MiB are free" in refused.value.detail
    assert not list((tmp_path / "models").iterdir())


def test_copying_is_counted_both_ways(monkeypatch):
    monkeypatch.setattr(bandwidth, "_seconds", lambda pool, work, pairs: 0.5)
    memory = measure_bandwidth(2, num_bytes=1 << 10)
    assert memory.copied == 2 * memory.read == 2 * 2 * (1 << 10) / 0.5


class _Looked:
    """A report that says which file it was given."""

    def __init__(self, options: SpeedOptions) -> None:
        assert options.model.exists()
        self._name = options.model.name

    def to_text(self) -> str:
        return f"found {self._name}"
