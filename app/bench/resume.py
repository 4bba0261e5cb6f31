"""``reprise bench resume``: a conversation, the process ended, a new process, the next reply.

Our side goes the whole way a user's conversation goes: chat template, sessions, kv.db. The model is
loaded and the conversation was not fetched ahead, as it usually is in the application while nothing
else is to be done: ``prefetched_ms`` is the same with that. The peer reads the same tokens from
nothing, and comes back from its own state file of as many tokens as we bring back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from app.bench.process import Answer, BenchProcess
from app.bench.report import Report, Row
from app.bench.texts import text_of

CONVERSATION = "bench"
NUM_REPLY_TOKENS = 16
NUM_CONTINUED_TOKENS = 32
NEXT_QUESTION = "Which of these entries is the most important one?"

Messages = list[tuple[str, str]]

# What another run may have set otherwise: the arguments of loading, by the name of the row.
CHANGES: dict[str, dict[str, object]] = {
    "kv_codec": {"kv_codec": "int8"},
    "context_length": {"context_length": 6144},
    "block_size": {"block_size": 128},
    "budgets": {"hot_budget_bytes": 512 << 20, "warm_budget_bytes": 64 << 20},
}


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """What to measure. repeats: restarts per row; figures are medians."""

    model: Path
    threads: int
    with_peer: bool
    repeats: int = 3
    lengths: tuple[int, ...] = (1000, 4000, 7500)
    codecs: tuple[str, ...] = ("f16",)


def measure_resume(options: ResumeOptions, say: Callable[[str], None]) -> Report:
    """Measure every length and codec.

    Raises: RuntimeError when a child process dies.
    """
    rows = []
    machine: Answer = {}
    for codec in options.codecs:
        for length in options.lengths:
            say(f"a conversation of {length} tokens in {codec}, ended and resumed")
            with TemporaryDirectory(prefix="reprise-bench-") as home:
                row, machine = _measure(options, home, length, codec)
            rows.append(row)
    rows += _changed(options, say)
    return Report("resume", options.model.name, machine, tuple(rows))


def _measure(options: ResumeOptions, home: str, length: int, codec: str) -> tuple[Row, Answer]:
    first = _first_process(options, home, length, codec)
    restored = [_restart(options, home, codec, first.messages) for _ in range(options.repeats)]
    restored_ms = median(answer["first_token_ms"] for answer in restored)
    prefetched = _restart(options, home, codec, first.messages, is_prefetched=True)
    reused = restored[-1]["reused_tokens"]
    peer = _peer(options, home, first.prompt, reused) if options.with_peer else {}
    extra: dict[str, Any] = {
        "cold_ms": first.cold_ms,
        "restored_ms": restored_ms,
        "times_sooner": first.cold_ms / restored_ms,
        "prefetched_ms": prefetched["first_token_ms"],
        **_parts(restored),
        **peer,
        "bytes": first.num_bytes,
        "reused_tokens": reused,
        "recomputed_tokens": restored[-1]["recomputed_tokens"],
        "identical": all(
            answer["token_ids"] == first.continued for answer in (*restored, prefetched)
        ),
        "of_own_cold_read": restored_ms / first.cold_ms,
    }
    if peer:
        extra["of_peer_read"] = restored_ms / peer["peer_read_ms"]
        extra["of_peer_restore"] = restored_ms / peer["peer_restore_ms"]
        extra["of_peer_bytes"] = first.num_bytes / peer["peer_bytes"]
    peer_ms = peer.get("peer_read_ms")
    ratio = peer_ms / restored_ms if peer_ms else None
    row = Row(f"restart_{length}_{codec}", "ms", restored_ms, peer_ms, ratio, extra)
    return row, first.machine


def _parts(restored: Sequence[Answer]) -> dict[str, Any]:
    """Return what bringing back and reading the rest took, and how fast bytes came back.

    Those of the blocks, and of the manifest, which has the newest tokens' keys and values in it.
    """
    restore_ms = median(answer["restore_ms"] for answer in restored)
    num_bytes = restored[-1]["restored_bytes"]
    return {
        "restore_ms": restore_ms,
        "read_ms": median(answer["prefill_ms"] for answer in restored),
        "restored_bytes": num_bytes,
        "restored_gb_per_second": num_bytes / restore_ms / 1e6,
    }


def _changed(options: ResumeOptions, say: Callable[[str], None]) -> list[Row]:
    """Measure restarts with other settings than those under which the conversation was read."""
    length, codec = options.lengths[0], options.codecs[0]
    rows = []
    with TemporaryDirectory(prefix="reprise-bench-") as home:
        say(f"a conversation of {length} tokens in {codec}, resumed with other settings")
        first = _first_process(options, home, length, codec)
        for name, change in CHANGES.items():
            with _load(options, home, codec, change=change) as ours:
                answer = _continue(ours, first.messages)
            reused = answer["reused_tokens"]
            extra = {
                "reused_tokens": reused,
                "recomputed_tokens": answer["recomputed_tokens"],
                "first_token_ms": answer["first_token_ms"],
                "of_own_cold_read": answer["first_token_ms"] / first.cold_ms,
            }
            share = 100 * reused / answer["prompt_tokens"]
            rows.append(Row(f"changed_{name}", "% reused", share, extra=extra))
    return rows


@dataclass(frozen=True, slots=True)
class _First:
    """What the first process saw. continued: the next reply without any interruption."""

    messages: Messages
    prompt: list[int]
    continued: list[int]
    cold_ms: float
    num_bytes: int
    machine: Answer


def _first_process(options: ResumeOptions, home: str, length: int, codec: str) -> _First:
    with _load(options, home, codec) as ours:
        question = ("user", text_of(ours, length))
        told = ours.ask(
            "turn",
            conversation=CONVERSATION,
            messages=[question],
            max_tokens=NUM_REPLY_TOKENS,
        )
        messages = [question, ("assistant", told["text"]), ("user", NEXT_QUESTION)]
        continued = _continue(ours, messages)
        prompt = ours.ask("prompt_tokens", messages=messages)["token_ids"]
        num_bytes = ours.ask("flush")["bytes"]
        return _First(
            messages,
            prompt,
            continued["token_ids"],
            told["first_token_ms"],
            num_bytes,
            ours.ask("machine"),
        )


def _restart(
    options: ResumeOptions,
    home: str,
    codec: str,
    messages: Messages,
    *,
    is_prefetched: bool = False,
) -> Answer:
    with _load(options, home, codec) as ours:
        if is_prefetched:
            ours.ask("bring_back", conversation=CONVERSATION)
        answer = _continue(ours, messages)
        manifest_bytes = ours.ask("written", conversation=CONVERSATION)["body_bytes"]
        return {**answer, "restored_bytes": answer["restored_bytes"] + manifest_bytes}


def _continue(ours: BenchProcess, messages: Messages) -> Answer:
    """Answer the next question on a throw-away fork, so that nothing more is stored."""
    return ours.ask(
        "turn",
        conversation=CONVERSATION,
        messages=messages,
        max_tokens=NUM_CONTINUED_TOKENS,
        ephemeral=True,
    )


def _load(
    options: ResumeOptions, home: str, codec: str, *, change: Mapping[str, object] | None = None
) -> BenchProcess:
    ours = BenchProcess("ours")
    settings: dict[str, object] = {"context_length": 8192, "kv_codec": codec, **(change or {})}
    ours.ask("load", model=str(options.model), threads=options.threads, home=home, **settings)
    return ours


def _peer(
    options: ResumeOptions, home: str, prompt: Sequence[int], num_stored: int
) -> dict[str, Any]:
    token_ids, name = list(prompt), "state.bin"
    history = token_ids[:num_stored]
    with _load_peer(options, home) as peer:
        read = [peer.ask("read", token_ids=token_ids)["ms"] for _ in range(2)]
        num_bytes = peer.ask("save", token_ids=history, name=name, state_dir=home)["bytes"]
    restored = []
    for _ in range(options.repeats):
        with _load_peer(options, home) as peer:
            restored.append(peer.ask("resume", token_ids=token_ids, name=name)["ms"])
    return {
        "peer_read_ms": median(read),
        "peer_restore_ms": median(restored),
        "peer_bytes": num_bytes,
    }


def _load_peer(options: ResumeOptions, home: str) -> BenchProcess:
    peer = BenchProcess("peer")
    peer.ask(
        "load",
        model=str(options.model),
        threads=options.threads,
        context_length=8192,
        state_dir=home,
    )
    return peer
