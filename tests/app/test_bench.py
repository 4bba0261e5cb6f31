"""Benches over a tiny model in this process: the rows that are promised, with sound numbers."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path

import pytest

from app.bench import accuracy, batch, clone, memory, resume, store, writing
from app.bench.accuracy import AccuracyOptions, measure_accuracy
from app.bench.batch import BatchOptions, measure_batch
from app.bench.clone import CloneOptions, measure_clone
from app.bench.memory import MemoryOptions, measure_memory
from app.bench.ours import Ours
from app.bench.process import BenchProcess
from app.bench.resume import ResumeOptions, measure_resume
from app.bench.store import StoreOptions, measure_store
from app.bench.writing import WritingOptions, measure_writing
from app.cli import run
from app.store.kv_store import KVStore
from tests.app.waiting import WAIT_S
from tests.engine.tiny_models import TinyModel, write_tiny_model


class InProcess:
    """A BenchProcess without a process."""

    def __init__(self, role: str) -> None:
        assert role == "ours"
        self._ours = Ours()

    def ask(self, operation: str, **arguments: object) -> dict[str, object]:
        answer = self._ours.operations()[operation](**arguments)
        return json.loads(json.dumps(answer))

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self._ours.close()


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for bench in (accuracy, batch, clone, memory, store, writing):
        monkeypatch.setattr(bench, "BenchProcess", InProcess)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", TinyModel(context_length=4096))


def test_completions_of_one_prompt_hold_it_once(model):
    options = BatchOptions(
        model, 1, False, repeats=1, sizes=(2, 6), prompt_tokens=400, num_tokens=20
    )
    report = measure_batch(options, print)
    assert [row.name for row in report.rows] == ["batch_2_shared_400", "batch_6_shared_400"]
    for row, size in zip(report.rows, options.sizes, strict=True):
        numbers = row.to_json()
        assert {"ours", "peer", "one_by_one", "of_one_by_one", "fraction"} <= set(numbers)
        assert numbers["ours"] > 0
        assert numbers["of_one_by_one_reading"] == pytest.approx(
            numbers["reading"] / numbers["one_by_one_reading"]
        )
        assert 320 < numbers["read_tokens"] <= 420
        assert numbers["bytes"] < numbers["independent_bytes"]
        assert numbers["fraction"] < 1 / size + 0.25


def test_memory_is_shared_and_said_to_be(model):
    options = MemoryOptions(
        model, 1, ("f16", "int8"), num_conversations=6, common_tokens=600, own_tokens=60, depth=700
    )
    report = measure_memory(options, print)
    rows = {row.name: row.to_json() for row in report.rows}
    shared = ["shared_6_f16", "equal_10_f16", "shared_6_int8", "equal_10_int8"]
    assert list(rows) == [*shared, "fork_at_700", "bookkeeping_at_700"]
    exact, packed = rows["shared_6_f16"], rows["shared_6_int8"]
    assert {"bytes", "independent_bytes", "fraction", "rss_mb"} <= set(exact)
    assert exact["fraction"] < 0.45
    assert packed["independent_bytes"] == exact["independent_bytes"]
    # The system prompt, which is more than half of the tokens, stays exact.
    assert packed["bytes"] < 0.9 * exact["bytes"]
    assert rows["equal_10_f16"]["ours"] < 1.6
    assert rows["fork_at_700"]["blocks"] <= 1
    assert 0.0 < rows["bookkeeping_at_700"]["ours"] < 100.0


def test_accuracy_gives_a_row_per_format_and_text(model, tmp_path):
    texts = (tmp_path / "a.txt", tmp_path / "b.txt")
    for number, text in enumerate(texts):
        text.write_text("The quick brown fox and the lazy dog. " * (9 + number))
    options = AccuracyOptions(model, 1, texts, ("int8", "k8v4"), num_tokens=200, chunk=32)
    report = measure_accuracy(options, print)
    names = [row.name for row in report.rows]
    assert names == [f"tiny_{c}_{t}" for c in ("int8", "k8v4") for t in ("a", "b", "all")]
    for row in report.rows:
        numbers = row.to_json()
        assert numbers["nll"] == pytest.approx(numbers["nll_f16"], rel=0.02)
        assert 0.8 < numbers["top1"] <= 1.0
        assert 0.0 < numbers["bytes_fraction"] < numbers["held_fraction"] < 1.0
    assert report.rows[2].to_json()["tokens"] == 2 * report.rows[0].to_json()["tokens"]


def test_what_is_stored_is_shared_too(model):
    options = StoreOptions(
        model, 1, False, ("f16",), num_conversations=4, common_tokens=600, own_tokens=60
    )
    report = measure_store(options, print)
    (row,) = report.rows
    assert row.name == "4_conversations"
    assert row.to_json()["bytes"] > 0
    assert "llama.cpp" in report.to_text()


def test_a_copy_is_compared_with_the_latest_tokens_of_equal_memory(model, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("The quick brown fox and the lazy dog saw a ship. " * 9)
    options = CloneOptions(model, 1, (text,), (0.9, 0.5), num_tokens=200, num_drawn=8)
    report = measure_clone(options, print)
    rows = {row.name: row.to_json() for row in report.rows}
    cases = ("", "_a_asked", "_a_unasked")
    assert list(rows) == [f"decay_{decay}{case}" for decay in (0.9, 0.5) for case in cases]
    assert rows["decay_0.5"]["kept"] == pytest.approx(0.5, abs=0.01)
    for row in rows.values():
        assert 0.0 <= row["agreement_drop_oldest"] <= 1.0
        assert 0.0 < row["kl"] < row["kl_drop_oldest"]
    assert rows["decay_0.9"]["kl"] < rows["decay_0.5"]["kl"]


def test_a_turn_writes_its_own_blocks_and_decoding_goes_on_meanwhile(model, monkeypatch):
    # Two seconds may be too short for quitting where the machine has much else to do.
    monkeypatch.setattr(KVStore, "close", partialmethod(KVStore.close, WAIT_S))
    report = measure_writing(WritingOptions(model, 1, 1, depth=400, turn_tokens=200), print)
    writing_behind, next_turn, quitting = (row.to_json() for row in report.rows)
    assert writing_behind["bytes_written"] > 0
    assert writing_behind["tokens_meanwhile"][0] >= 1
    assert next_turn["bytes"] == next_turn["bytes_of_new_blocks"] > 0
    assert next_turn["ours"] == 1.0
    assert quitting["is_all_written"]
    assert quitting["reused_tokens"] > 300 > quitting["recomputed_tokens"]


@pytest.mark.slow
def test_a_restart_reads_only_what_is_new_also_with_other_settings(model, monkeypatch):
    processes = [BenchProcess, BenchProcess]  # the restart is real, other settings are not

    def open_bench(role: str) -> BenchProcess | InProcess:
        return (processes.pop() if processes else InProcess)(role)

    monkeypatch.setattr(resume, "BenchProcess", open_bench)
    report = measure_resume(ResumeOptions(model, 1, False, 1, (300,), ("f16",)), print)
    restarted, *changed = (row.to_json() for row in report.rows)
    assert restarted["identical"]
    names = ("kv_codec", "context_length", "block_size", "budgets")
    assert [row["name"] for row in changed] == [f"changed_{name}" for name in names]
    for row in changed:
        assert row["reused_tokens"] == restarted["reused_tokens"] > 200


def test_accuracy_wants_texts(capsys, tmp_path):
    def bench(*arguments: str) -> int:
        return run(["bench", "accuracy", *arguments], open_window=lambda files: 1)

    assert bench("--model", "x.gguf") == 1
    assert "--texts" in capsys.readouterr().err
    assert bench("--model", "x.gguf", "--texts", str(tmp_path)) == 1
    assert "no .txt file" in capsys.readouterr().err
