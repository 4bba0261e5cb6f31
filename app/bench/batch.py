"""``reprise bench batch``: several completions of one prompt, against one by one and llama.cpp.

Everybody has read the prompt before; what is timed is the completions, from the request on. The
figures called reading are of prompts that nobody has read: one for all completions, or, as without
a cache of prefixes, one for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from app.bench.process import Answer, BenchProcess
from app.bench.report import Report, Row
from app.bench.texts import prompt_tokens, question_of

# One by one costs the same each time, so a few tell.
MOST_SINGLE = 4
MOST_READING = 2
# Entries between the first ones of two texts that have no beginning in common.
_APART = 1000
CONVERSATION = "batch"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What to measure. repeats: alternating runs per row; the row is their median."""

    model: Path
    threads: int
    with_peer: bool
    repeats: int = 3
    sizes: tuple[int, ...] = (4, 16)
    prompt_tokens: int = 1000
    num_tokens: int = 64


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A question, and the token ids of the conversation that is this question."""

    messages: Sequence[tuple[str, str]]
    token_ids: list[int]


@dataclass(frozen=True, slots=True)
class _Runs:
    """The answers of one batch size, one of each per repeat; reading: of unread prompts."""

    together: list[Answer] = field(default_factory=list)
    single: list[list[Answer]] = field(default_factory=list)
    reading: list[Answer] = field(default_factory=list)
    single_reading: list[list[Answer]] = field(default_factory=list)
    peer: list[Answer] = field(default_factory=list)


class _UnreadPrompts:
    """Requests whose prompt begins like no other."""

    def __init__(self, ours: BenchProcess, options: BatchOptions) -> None:
        self._ours = ours
        self._options = options
        self._numbers = itertools.count(1)

    def complete(self, n: int) -> Answer:
        """Read a prompt, and draw n completions of it."""
        number = next(self._numbers)
        text = question_of(self._ours, self._options.prompt_tokens, first=number * _APART)
        return self._ours.ask(
            "complete",
            conversation=f"unread {number}",
            messages=[("user", text)],
            n=n,
            num_tokens=self._options.num_tokens,
        )


def measure_batch(options: BatchOptions, say: Say) -> Report:
    """Measure every batch size.

    Raises: RuntimeError when a child process dies.
    """
    with ExitStack() as stack:
        ours = stack.enter_context(BenchProcess("ours"))
        _load(ours, options, hot_budget_bytes=4 << 30)
        prompt = _prompt(ours, options)
        say(f"reading a prompt of {len(prompt.token_ids)} tokens")
        read_rate = _read(ours, prompt)
        unread = _UnreadPrompts(ours, options)
        rows = []
        for size in options.sizes:
            with ExitStack() as peers:
                peer = _peer(peers, options, prompt, size)
                runs = _run(ours, peer, (prompt, unread), options, size, say)
            rows.append(_row(options, size, runs, read_rate))
        machine = ours.ask("machine")
    return Report("batch", options.model.name, machine, tuple(rows))


def _load(engine: BenchProcess, options: BatchOptions, **more: object) -> None:
    engine.ask(
        "load",
        model=str(options.model),
        threads=options.threads,
        context_length=options.prompt_tokens + max(options.sizes) * (options.num_tokens + 64),
        **more,
    )


def _prompt(ours: BenchProcess, options: BatchOptions) -> _Prompt:
    text = question_of(ours, options.prompt_tokens)
    return _Prompt([("user", text)], prompt_tokens(ours, text))


def _read(ours: BenchProcess, prompt: _Prompt) -> float:
    """Read the prompt once for all that follows; return tokens per second."""
    answer = ours.ask("turn", conversation=CONVERSATION, messages=prompt.messages, max_tokens=1)
    return float(answer["recomputed_tokens"] / answer["prefill_ms"] * 1000.0)


def _peer(
    stack: ExitStack, options: BatchOptions, prompt: _Prompt, size: int
) -> BenchProcess | None:
    """Return llama.cpp with a slot for each completion, the prompt in its cache."""
    if not options.with_peer:
        return None
    peer = stack.enter_context(BenchProcess("peer"))
    _load(peer, options, slots=size)
    peer.ask("complete", token_ids=prompt.token_ids, n=size, num_tokens=2)
    return peer


def _run(
    ours: BenchProcess,
    peer: BenchProcess | None,
    prompts: tuple[_Prompt, _UnreadPrompts],
    options: BatchOptions,
    size: int,
    say: Say,
) -> _Runs:
    prompt, unread = prompts
    own = {
        "conversation": CONVERSATION,
        "messages": prompt.messages,
        "num_tokens": options.num_tokens,
    }
    runs = _Runs()
    for repeat in range(options.repeats):
        say(f"{size} completions, run {repeat + 1} of {options.repeats}")
        runs.together.append(ours.ask("complete", n=size, **own))
        count = min(size, MOST_SINGLE)
        runs.single.append([ours.ask("complete", n=1, **own) for _ in range(count)])
        runs.reading.append(unread.complete(size))
        alone = [unread.complete(1) for _ in range(min(size, MOST_READING))]
        runs.single_reading.append(alone)
        if peer is not None:
            ids = prompt.token_ids
            runs.peer.append(
                peer.ask("complete", token_ids=ids, n=size, num_tokens=options.num_tokens)
            )
    return runs


def _row(options: BatchOptions, size: int, runs: _Runs, read_rate: float) -> Row:
    ours = median(_rate(answer) for answer in runs.together)
    single = median(_rate(*answers) for answers in runs.single)
    reading = median(_rate(answer) for answer in runs.reading)
    single_reading = median(_rate(*answers) for answers in runs.single_reading)
    peer = median(_rate(answer) for answer in runs.peer) if runs.peer else None
    held, held_by_one = runs.together[-1]["held_bytes"], runs.single[-1][-1]["held_bytes"]
    extra: dict[str, Any] = {
        "one_by_one": single,
        "of_one_by_one": ours / single,
        "reading": reading,
        "one_by_one_reading": single_reading,
        "of_one_by_one_reading": reading / single_reading,
        "read_tokens": runs.single_reading[-1][-1]["read_tokens"],
        # No pass over a few rows is faster by the row than one over a whole chunk of a prompt.
        "reading_of_one_by_one": read_rate / single,
        "bytes": held,
        "independent_bytes": size * held_by_one,
        "fraction": held / (size * held_by_one),
    }
    return Row(
        f"batch_{size}_shared_{options.prompt_tokens}",
        "tokens/s",
        ours,
        peer,
        None if peer is None else ours / peer,
        extra,
    )


def _rate(*answers: Answer) -> float:
    """Return the tokens per second of some requests, one after the other."""
    return float(sum(a["num_tokens"] for a in answers) / sum(a["seconds"] for a in answers))
