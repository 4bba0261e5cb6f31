"""``reprise bench speed``: prefill, decode, load and memory, alternating with llama.cpp.

Each format of keys and values is compared with f16 as well, in turns at the greatest depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from app.bench.bandwidth import BUFFER_BYTES, measure_bandwidth
from app.bench.process import Answer, BenchProcess, Role
from app.bench.report import Report, Row, compare
from engine.gguf_file import GGUFFile

PREFILL_LENGTHS = (512, 4000)
DECODE_DEPTHS = (512, 4000)
NUM_DECODED = 48
TOP_K = 40


@dataclass(frozen=True, slots=True)
class SpeedOptions:
    """What to measure. repeats: alternating runs per row; the row is their median.

    codecs: formats of keys and values that are compared with f16.
    """

    model: Path
    threads: int
    with_peer: bool
    repeats: int = 3
    lengths: tuple[int, ...] = PREFILL_LENGTHS
    depths: tuple[int, ...] = DECODE_DEPTHS
    codecs: tuple[str, ...] = ()
    num_decoded: int = NUM_DECODED
    buffer_bytes: int = BUFFER_BYTES


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
        prefill = _prefill_rows(engines, options, say)
        decode = _decode_rows(engines, options, say)
        rows = [
            *prefill,
            *decode,
            _drawing_row(engines[0], options, say),
            _bandwidth_row(decode[0], options, say),
            _compare("load", "ms", loads, smaller_is_better=True),
            _compare("resident_mb", "MiB", [_memory(engines)], smaller_is_better=True),
            *(_codec_row(engines[0], codec, options, say) for codec in options.codecs),
        ]
    return Report("speed", options.model.name, machine, tuple(rows))


def _roles(options: SpeedOptions) -> Sequence[Role]:
    return ("ours", "peer") if options.with_peer else ("ours",)


def _load(engine: BenchProcess, options: SpeedOptions, **more: object) -> float:
    answer = engine.ask(
        "load",
        model=str(options.model),
        threads=options.threads,
        context_length=_context_length(options),
        **more,
    )
    return float(answer["load_ms"])


def _context_length(options: SpeedOptions) -> int:
    return max(*options.lengths, *options.depths) + 4 * options.num_decoded


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
        rates = _decode_rates(engines, depth, options)
        rows.append(_compare(f"decode_at_{depth}", "tokens/s", rates))
    return rows


def _decode_rates(
    engines: Sequence[BenchProcess], depth: int, options: SpeedOptions
) -> list[list[float]]:
    """Return tokens per second, a list per run with one rate per engine in it."""
    prompt = text_tokens(depth)
    for engine in engines:  # the prompt is read once, then reused by every run
        engine.ask("decode", token_ids=prompt, num_tokens=2)
    samples = _alternate(
        engines, options.repeats, "decode", token_ids=prompt, num_tokens=options.num_decoded
    )
    return [[answer["tokens_per_second"] for answer in run] for run in samples]


def _drawing_row(ours: BenchProcess, options: SpeedOptions, say: Callable[[str], None]) -> Row:
    """Generate with as many exact logits as drawing from the top_k largest asks for, in turns.

    The other decode rows are greedy, which needs one. whole: with all of them, as without top_k.
    """
    depth = min(options.depths)
    say(f"generating at depth {depth} with more exact logits")
    prompt = text_tokens(depth)
    rates: dict[int, list[float]] = {1: [], TOP_K: [], 0: []}
    for _ in range(options.repeats):
        for num_sure, found in rates.items():
            answer = ours.ask(
                "decode", token_ids=prompt, num_tokens=options.num_decoded, num_sure=num_sure
            )
            found.append(answer["tokens_per_second"])
    greedy, drawn, whole = map(median, rates.values())
    extra = {"greedy": greedy, "whole": whole, "of_whole": drawn / whole}
    return Row(f"decode_at_{depth}_top_{TOP_K}", "tokens/s", drawn, extra=extra)


def _bandwidth_row(decoded: Row, options: SpeedOptions, say: Callable[[str], None]) -> Row:
    """Compare the weights read per second while generating with what memory reaches.

    Weights are counted as they lie in the file, each once per token; a copy's bytes are those read
    and those written. An output head of 8 bits counts whole, of which ours reads a part: only where
    there is none, as in the synthetic model, does the row tell how well memory is used.
    """
    say("copying and reading memory")
    memory = measure_bandwidth(options.threads, num_bytes=options.buffer_bytes)
    num_bytes = _bytes_per_token(options.model)
    extra = {
        "weights_gb_per_token": num_bytes / 1e9,
        "weights_gb_per_second": num_bytes * decoded.ours / 1e9,
        "copied_gb_per_second": memory.copied / 1e9,
        "read_gb_per_second": memory.read / 1e9,
        "of_reading": num_bytes * decoded.ours / memory.read,
    }
    peer = [] if decoded.peer is None else [num_bytes * decoded.peer / memory.copied]
    ours = [num_bytes * decoded.ours / memory.copied]
    return compare("weights_bandwidth", "of copying", ours, peer, extra=extra)


def _bytes_per_token(model: Path) -> int:
    """Return the bytes of the matrices that every token is multiplied with."""
    file = GGUFFile.open(model)
    try:
        sizes = {name: t.num_bytes for name, t in file.tensors.items() if len(t.shape) > 1}
    finally:
        file.close()
    if "output.weight" in sizes:  # else the embedding is the output matrix too
        sizes.pop("token_embd.weight", None)
    return sum(sizes.values())


def _codec_row(
    exact: BenchProcess, codec: str, options: SpeedOptions, say: Callable[[str], None]
) -> Row:
    """Generate with keys and values in this format and in f16, in turns."""
    depth = max(options.depths)
    say(f"generating at depth {depth} with {codec}")
    with BenchProcess("ours") as packed:
        _load(packed, options, kv_codec=codec)
        rates = _decode_rates((packed, exact), depth, options)
    row = compare("", "", [run[0] for run in rates], [run[1] for run in rates])
    extra = {"f16": row.peer, "of_f16": row.ratio}
    return Row(f"decode_at_{depth}_{codec}", "tokens/s", row.ours, extra=extra)


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

    The cost of a token does not depend on which it is, but for the few rows of an output head that
    are looked at twice; a fixed sequence keeps runs comparable.
    """
    return [1000 + (i * 7919 + i * i * 31) % 25000 for i in range(length)]
