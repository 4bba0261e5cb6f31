"""``reprise bench writing``: what it costs that states are written while a reply is generated."""

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

    repeats: alternating pairs of runs. turn_tokens: of a conversation whose next turn is written.
    """

    model: Path
    threads: int
    repeats: int = 7
    depth: int = 4000
    turn_tokens: int = 1000
    max_decoded: int = 64


def measure_writing(options: WritingOptions, say: Say) -> Report:
    """Measure both. Raises: RuntimeError when a child process dies."""
    with TemporaryDirectory(prefix="reprise-bench-") as home, BenchProcess("ours") as ours:
        ours.ask(
            "load",
            model=str(options.model),
            threads=options.threads,
            context_length=options.depth + 2 * options.max_decoded,
            home=home,
        )
        rows = (_decode(ours, options, say), _next_turn(ours, options, say))
        return Report("writing", options.model.name, ours.ask("machine"), rows)


def _decode(ours: BenchProcess, options: WritingOptions, say: Say) -> Row:
    say(f"generating at depth {options.depth}, with and without a snapshot being written")
    prompt = prompt_tokens(ours, text_of(ours, options.depth))
    pairs = [_pair(ours, options, prompt) for _ in range(options.repeats)]
    with_writing, quiet = ([pair[at]["tokens_per_second"] for pair in pairs] for at in (0, 1))
    # Each pair was measured at about the same time: its ratio survives what else the machine does.
    ratio = median(a / b for a, b in zip(with_writing, quiet, strict=True))
    extra = {
        "tokens_per_second": median(with_writing),
        "tokens_per_second_without": median(quiet),
        "bytes_written": pairs[0][0]["bytes"],
        "tokens_meanwhile": [pair[0]["num_tokens"] for pair in pairs],
        "queue_ms": median(pair[0]["queue_ms"] for pair in pairs),
    }
    return Row("writing_behind", "% of speed without", 100 * ratio, extra=extra)


def _pair(ours: BenchProcess, options: WritingOptions, prompt: list[int]) -> tuple[Answer, Answer]:
    """Decode while the conversation is written, then as many tokens without."""
    written = ours.ask("decode_writing", token_ids=prompt, max_tokens=options.max_decoded)
    quiet = ours.ask("decode", token_ids=prompt, num_tokens=written["num_tokens"])
    return written, quiet


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


def _turn(ours: BenchProcess, messages: list[tuple[str, str]]) -> Answer:
    return ours.ask("turn", conversation=CONVERSATION, messages=messages, max_tokens=48)
