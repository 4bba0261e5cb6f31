"""``reprise bench writing``: what it costs to write states behind, and to quit meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from app.bench.process import Answer, BenchProcess
from app.bench.report import Report, Row
from app.bench.texts import prompt_tokens, question_of, text_of

CONVERSATION = "bench"
NEXT_QUESTION = "Which of these entries is the most important one?"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WritingOptions:
    """What to measure: decoding at depth tokens, while that many are written and without.

    repeats: runs with writing, each between two without. turn_tokens: of a conversation whose next
    turn is written.
    """

    model: Path
    threads: int
    repeats: int = 15
    depth: int = 4000
    turn_tokens: int = 1000
    max_decoded: int = 160


def measure_writing(options: WritingOptions, say: Say) -> Report:
    """Measure all. Raises: RuntimeError when a child process dies."""
    with TemporaryDirectory(prefix="reprise-bench-") as home, BenchProcess("ours") as ours:
        _load(ours, options, home)
        rows = [_decode(ours, options, say), _next_turn(ours, options, say)]
        machine = ours.ask("machine")
    rows.append(_quit(options, say))
    return Report("writing", options.model.name, machine, tuple(rows))


def _load(ours: BenchProcess, options: WritingOptions, home: str) -> None:
    ours.ask(
        "load",
        model=str(options.model),
        threads=options.threads,
        context_length=options.depth + 2 * options.max_decoded,
        home=home,
    )


def _decode(ours: BenchProcess, options: WritingOptions, say: Say) -> Row:
    say(f"generating at depth {options.depth}, with and without a snapshot being written")
    prompt = prompt_tokens(ours, text_of(ours, options.depth))
    quiet = [_speed(ours, options, prompt, is_written=False)["tokens_per_second"]]
    written: list[Answer] = []
    for _ in range(options.repeats):
        written.append(_speed(ours, options, prompt, is_written=True))
        quiet.append(_speed(ours, options, prompt, is_written=False)["tokens_per_second"])
    speeds = [answer["tokens_per_second"] for answer in written]
    # Compared with what was measured right before and after, so that it survives what else the
    # machine does.
    ratios = [
        2 * speed / (before + after)
        for speed, before, after in zip(speeds, quiet[:-1], quiet[1:], strict=True)
    ]
    extra = {
        "tokens_per_second": median(speeds),
        "tokens_per_second_without": median(quiet),
        "ratios": ratios,
        "bytes_written": written[0]["bytes"],
        "tokens_meanwhile": [answer["num_tokens"] for answer in written],
        "queue_ms": median(answer["queue_ms"] for answer in written),
        "write_seconds": median(answer["write_seconds"] for answer in written),
    }
    return Row("writing_behind", "% of speed without", 100 * median(ratios), extra=extra)


def _speed(
    ours: BenchProcess, options: WritingOptions, prompt: list[int], *, is_written: bool
) -> Answer:
    return ours.ask(
        "decode_writing",
        token_ids=prompt,
        max_tokens=options.max_decoded,
        is_written=is_written,
    )


def _next_turn(ours: BenchProcess, options: WritingOptions, say: Say) -> Row:
    """Measure the bytes of a second turn, against those of the blocks that are new in it."""
    say("what a second turn writes")
    question = ("user", question_of(ours, options.turn_tokens))
    told = _turn(ours, [question])
    first = ours.ask("written", conversation=CONVERSATION)
    _turn(ours, [question, ("assistant", told["text"]), ("user", NEXT_QUESTION)])
    second = ours.ask("written", conversation=CONVERSATION)
    new_blocks = second["tokens"] // second["block_size"] - first["tokens"] // first["block_size"]
    num_bytes = second["bytes"] - first["bytes"]
    extra = {
        "bytes": num_bytes,
        "new_blocks": new_blocks,
        "bytes_of_new_blocks": new_blocks * second["block_bytes"],
        "tail_tokens": second["tokens"] % second["block_size"],
        "bytes_of_first_turn": first["bytes"],
    }
    ratio = num_bytes / (new_blocks * second["block_bytes"])
    return Row("next_turn", "x of its own blocks", ratio, extra=extra)


def _quit(options: WritingOptions, say: Say) -> Row:
    """Measure how long the program takes to end right after a turn, and what is there again."""
    say(f"quitting while {options.depth} tokens are to be written")
    with TemporaryDirectory(prefix="reprise-bench-") as home:
        with BenchProcess("ours") as ours:
            _load(ours, options, home)
            question = ("user", question_of(ours, options.depth))
            told = _turn(ours, [question], max_tokens=1)
            ended = ours.ask("quit")
        with BenchProcess("ours") as ours:
            _load(ours, options, home)
            messages = [question, ("assistant", told["text"]), ("user", NEXT_QUESTION)]
            again = _turn(ours, messages, max_tokens=1)
    extra = {
        "is_all_written": ended["is_done"],
        "bytes_on_disk": ended["bytes"],
        "reused_tokens": again["reused_tokens"],
        "recomputed_tokens": again["recomputed_tokens"],
    }
    return Row("quitting", "ms", ended["ms"], extra=extra)


def _turn(ours: BenchProcess, messages: list[tuple[str, str]], *, max_tokens: int = 48) -> Answer:
    return ours.ask("turn", conversation=CONVERSATION, messages=messages, max_tokens=max_tokens)
