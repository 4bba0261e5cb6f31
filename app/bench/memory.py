"""``reprise bench memory``: many conversations under one system prompt, and what they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.bench.process import Answer, BenchProcess
from app.bench.report import Report, Row
from app.bench.texts import prompt_tokens, question_of, text_of
from engine.config import BLOCK_SIZES, EngineConfig

_MIB = 1 << 20
# Of growth that is pure sharing.
NUM_EQUAL = 10
NUM_FORKS = 20
# Two blocks of usual size are filled and sealed meanwhile.
NUM_DECODED = 64
# No conversation measured has entries of these numbers.
_OTHER_TEXT = 900_000

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """What to measure: conversations of own_tokens each under a prompt of common_tokens.

    depth: tokens of the conversation whose forks and decode steps are measured.
    """

    model: Path
    threads: int
    codecs: tuple[str, ...] = ("f16", "int8")
    num_conversations: int = 50
    common_tokens: int = 1000
    own_tokens: int = 200
    depth: int = 4000


def measure_memory(options: MemoryOptions, say: Say) -> Report:
    """Measure every format; what independent conversations would hold is measured in f16.

    Raises: RuntimeError when a child process dies.
    """
    rows: list[Row] = []
    machine: Answer = {}
    single_bytes = _single_bytes(options, say)
    for codec in options.codecs:
        row, machine = _shared(options, codec, single_bytes, say)
        rows += [row, _equal(options, codec, say)]
    rows += _block_costs(options, say)
    return Report("memory", options.model.name, machine, tuple(rows))


def _single_bytes(options: MemoryOptions, say: Say) -> int:
    """Return what one conversation alone holds in f16."""
    say("one conversation alone, in f16")
    with _load(options, "f16") as ours:
        _ask(ours, 0, _system(ours, options), _own(ours, options, 0))
        return int(ours.ask("memory")["bytes"])


def _shared(options: MemoryOptions, codec: str, single_bytes: int, say: Say) -> tuple[Row, Answer]:
    count = options.num_conversations
    say(f"{count} conversations that share a system prompt, in {codec}")
    with _load(options, codec) as ours:
        system = _system(ours, options)
        own = [_own(ours, options, number) for number in range(count)]
        _warm_up(ours, options)
        before = ours.ask("memory")
        for number, text in enumerate(own):
            _ask(ours, number, system, text)
        after = ours.ask("memory")
        machine = ours.ask("machine")
    held = after["bytes"] - before["bytes"]
    independent = count * single_bytes
    grown = (after["resident_mb"] - before["resident_mb"]) * _MIB
    extra = {
        "bytes": held,
        "independent_bytes": independent,
        "fraction": held / independent,
        "rss_mb": grown / _MIB,
        "rss_of_bytes": grown / held,
    }
    return Row(
        f"shared_{count}_{codec}", "% of bytes", 100 * held / independent, extra=extra
    ), machine


def _equal(options: MemoryOptions, codec: str, say: Say) -> Row:
    """Measure conversations that are equal: what sharing itself costs."""
    say(f"{NUM_EQUAL} equal conversations, in {codec}")
    with _load(options, codec) as ours:
        system, own = _system(ours, options), _own(ours, options, 0)
        _ask(ours, 0, system, own)
        first = ours.ask("memory")["bytes"]
        for number in range(1, NUM_EQUAL):
            _ask(ours, number, system, own)
        last = ours.ask("memory")["bytes"]
    extra = {"bytes_of_one": first, "bytes": last}
    return Row(f"equal_{NUM_EQUAL}_{codec}", "x of one", last / first, extra=extra)


def _block_costs(options: MemoryOptions, say: Say) -> list[Row]:
    """Measure what forks cost, and what part of a decode step the blocks take."""
    say(f"forks and decode steps at {options.depth} tokens")
    # Not whole blocks: the last one is open and must be copied.
    length = options.depth + min(BLOCK_SIZES) // 2
    with _load(options, EngineConfig().kv_codec.value, num_tokens=length) as ours:
        prompt = prompt_tokens(ours, text_of(ours, length + 100))[:length]
        cost = ours.ask(
            "block_costs", token_ids=prompt, num_tokens=NUM_DECODED, num_forks=NUM_FORKS
        )
    share = 100 * cost["bookkeeping_ms"] / cost["step_ms"]
    forks = {"blocks": cost["fork_blocks"]}
    steps = {"bookkeeping_ms": cost["bookkeeping_ms"], "step_ms": cost["step_ms"]}
    return [
        Row(f"fork_at_{options.depth}", "ms", cost["fork_ms"], extra=forks),
        Row(f"bookkeeping_at_{options.depth}", "% of decode", share, extra=steps),
    ]


def _load(options: MemoryOptions, codec: str, *, num_tokens: int = 0) -> BenchProcess:
    ours = BenchProcess("ours")
    of_conversations = sum(_sizes(options))
    ours.ask(
        "load",
        model=str(options.model),
        threads=options.threads,
        context_length=max(num_tokens, of_conversations) + 512,
        kv_codec=codec,
        hot_budget_bytes=8 << 30,
    )
    return ours


def _system(ours: BenchProcess, options: MemoryOptions) -> str:
    return question_of(ours, options.common_tokens)


def _own(ours: BenchProcess, options: MemoryOptions, number: int) -> str:
    """Return a question of this conversation alone; the numbers keep clear of the system's."""
    return question_of(ours, options.own_tokens, first=1000 * (number + 1))


def _warm_up(ours: BenchProcess, options: MemoryOptions) -> None:
    """Let everything be allocated that the first conversation of this length allocates for good."""
    other = [question_of(ours, size, first=_OTHER_TEXT) for size in _sizes(options)]
    _ask(ours, -1, *other)
    ours.ask("forget", conversation=_name(-1))


def _sizes(options: MemoryOptions) -> tuple[int, int]:
    return options.common_tokens, options.own_tokens


def _name(number: int) -> str:
    return f"c{number}"


def _ask(ours: BenchProcess, number: int, system: str, own: str) -> None:
    conversation = _name(number)
    messages = [("system", system), ("user", own)]
    ours.ask("turn", conversation=conversation, messages=messages, max_tokens=1)
    ours.ask("rest", conversation=conversation)
