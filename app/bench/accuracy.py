"""``reprise bench accuracy``: what a K/V format costs, over texts that the user names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.bench.process import Answer, BenchProcess
from app.bench.report import Report, Row


@dataclass(frozen=True, slots=True)
class AccuracyOptions:
    """What to measure. num_tokens: of each text, from its start. chunk: tokens read at once."""

    model: Path
    threads: int
    texts: tuple[Path, ...]
    codecs: tuple[str, ...] = ("int8", "k8v4")
    num_tokens: int = 2000
    chunk: int = 128


def measure_accuracy(options: AccuracyOptions, say: Callable[[str], None]) -> Report:
    """Measure every format on every text, and on all of them together.

    Raises: RuntimeError when a child process dies; OSError when a text cannot be read.
    """
    rows: list[Row] = []
    machine: Answer = {}
    for codec in options.codecs:
        with BenchProcess("ours") as ours:
            ours.ask(
                "load",
                model=str(options.model),
                threads=options.threads,
                context_length=options.num_tokens + 64,
                kv_codec=codec,
            )
            machine = ours.ask("machine")
            rows += _rows(options, ours, codec, say)
    return Report("accuracy", options.model.name, machine, tuple(rows))


def _rows(
    options: AccuracyOptions, ours: BenchProcess, codec: str, say: Callable[[str], None]
) -> list[Row]:
    scores: dict[str, Answer] = {}
    for text in options.texts:
        say(f"{text.name}: {codec} against f16")
        scores[text.stem] = ours.ask(
            "accuracy",
            text=text.read_text(encoding="utf-8"),
            num_tokens=options.num_tokens,
            chunk=options.chunk,
        )
    prefix = f"{options.model.stem}_{codec}"
    rows = [_row(f"{prefix}_{name}", score) for name, score in scores.items()]
    return [*rows, _row(f"{prefix}_all", _together(list(scores.values())))]


def _together(scores: list[Answer]) -> Answer:
    """Return the means of several texts, each position counting the same; sums of bytes."""
    total = sum(score["num_tokens"] for score in scores)
    means = {
        name: sum(score[name] * score["num_tokens"] for score in scores) / total
        for name in ("nll", "nll_exact", "top1", "kl")
    }
    sums = {name: sum(s[name] for s in scores) for name in ("hot_bytes", "exact_hot_bytes")}
    change = means["nll"] / means["nll_exact"] - 1.0
    return {**scores[0], **means, **sums, "num_tokens": total, "nll_change": change}


def _row(name: str, score: Answer) -> Row:
    extra = {
        "tokens": score["num_tokens"],
        "nll": score["nll"],
        "nll_f16": score["nll_exact"],
        "nll_change": score["nll_change"],
        "top1": score["top1"],
        "kl": score["kl"],
        "bytes_fraction": score["bytes_per_token"] / score["exact_bytes_per_token"],
        "held_fraction": score["hot_bytes"] / score["exact_hot_bytes"],
    }
    return Row(name, "% NLL", 100.0 * score["nll_change"], extra=extra)
