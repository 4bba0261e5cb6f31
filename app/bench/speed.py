"""``reprise bench speed``: prefill, decode, load and memory, alternating with llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from app.bench.process import Answer, BenchProcess, Role
from app.bench.report import Report, Row, compare

PREFILL_LENGTHS = (512, 4000)
DECODE_DEPTHS = (512, 4000)
NUM_DECODED = 48


@dataclass(frozen=True, slots=True)
class SpeedOptions:
    """What to measure. repeats: alternating runs per row; the row is their median."""

    model: Path
    threads: int
    with_peer: bool
    repeats: int = 3
    lengths: tuple[int, ...] = PREFILL_LENGTHS
    depths: tuple[int, ...] = DECODE_DEPTHS


def measure_speed(options: SpeedOptions, say: Callable[[str], None]) -> Report:
    """Measure every row; say tells the user what is being run.

    Raises: RuntimeError when a child process dies.
    """
    loads = [_loads(options, say) for _ in range(options.repeats)]
    with ExitStack() as stack:
        engines = [stack.enter_context(BenchProcess(role)) for role in _roles(options)]
        for engine in engines:
            _load(engine, options)
        machine = engines[0].ask("machine")
        rows = [
            *_prefill_rows(engines, options, say),
            *_decode_rows(engines, options, say),
            _compare("load", "ms", loads, smaller_is_better=True),
            _compare("resident_mb", "MiB", [_memory(engines)], smaller_is_better=True),
        ]
    return Report("speed", options.model.name, machine, tuple(rows))


def _roles(options: SpeedOptions) -> Sequence[Role]:
    return ("ours", "peer") if options.with_peer else ("ours",)


def _load(engine: BenchProcess, options: SpeedOptions) -> float:
    answer = engine.ask(
        "load",
        model=str(options.model),
        threads=options.threads,
        context_length=_context_length(options),
    )
    return float(answer["load_ms"])


def _context_length(options: SpeedOptions) -> int:
    return max(*options.lengths, *options.depths) + 4 * NUM_DECODED


def _loads(options: SpeedOptions, say: Callable[[str], None]) -> list[float]:
    say("loading in fresh processes")
    samples = []
    for role in _roles(options):
        with BenchProcess(role) as engine:
            samples.append(_load(engine, options))
    return samples


def _prefill_rows(
    engines: Sequence[BenchProcess], options: SpeedOptions, say: Callable[[str], None]
) -> list[Row]:
    rows = []
    for length in options.lengths:
        say(f"reading {length} tokens")
        token_ids = text_tokens(length)
        samples = _alternate(engines, options.repeats, "read", token_ids=token_ids)
        rates = [[length / a["ms"] * 1000.0 for a in run] for run in samples]
        rows.append(_compare(f"prefill_{length}", "tokens/s", rates))
    return rows


def _decode_rows(
    engines: Sequence[BenchProcess], options: SpeedOptions, say: Callable[[str], None]
) -> list[Row]:
    rows = []
    for depth in options.depths:
        say(f"generating at depth {depth}")
        prompt = text_tokens(depth)
        for engine in engines:  # the prompt is read once, then reused by every run
            engine.ask("decode", token_ids=prompt, num_tokens=2)
        samples = _alternate(
            engines, options.repeats, "decode", token_ids=prompt, num_tokens=NUM_DECODED
        )
        rates = [[a["tokens_per_second"] for a in run] for run in samples]
        rows.append(_compare(f"decode_at_{depth}", "tokens/s", rates))
    return rows


def _memory(engines: Sequence[BenchProcess]) -> list[float]:
    return [float(engine.ask("memory")["resident_mb"]) for engine in engines]


def _alternate(
    engines: Sequence[BenchProcess], repeats: int, operation: str, **arguments: object
) -> list[list[Answer]]:
    """Return one list per run, with one answer per engine in it."""
    return [[engine.ask(operation, **arguments) for engine in engines] for _ in range(repeats)]


def _compare(
    name: str, unit: str, runs: Sequence[Sequence[float]], *, smaller_is_better: bool = False
) -> Row:
    ours = [run[0] for run in runs]
    peer = [run[1] for run in runs if len(run) > 1]
    return compare(name, unit, ours, peer, smaller_is_better=smaller_is_better)


def text_tokens(length: int) -> list[int]:
    """Return varied, valid token ids of any vocabulary of at least 30,000 entries.

    The cost of a token does not depend on which it is; a fixed sequence keeps runs comparable.
    """
    return [1000 + (i * 7919 + i * i * 31) % 25000 for i in range(length)]
