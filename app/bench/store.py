"""``reprise bench store``: what conversations with a common beginning take on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.bench.process import Answer, BenchProcess
from app.bench.report import Report, Row
from app.bench.texts import question_of

Say = Callable[[str], None]
Prompts = list[list[int]]


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What to measure: conversations of own_tokens each under a prompt of common_tokens."""

    model: Path
    threads: int
    with_peer: bool
    codecs: tuple[str, ...] = ("f16", "int8")
    num_conversations: int = 20
    common_tokens: int = 2000
    own_tokens: int = 200

    @property
    def context_length(self) -> int:
        """Tokens one conversation may take."""
        return self.common_tokens + self.own_tokens + 512


def measure_store(options: StoreOptions, say: Say) -> Report:
    """Measure every format; the peer keeps one state file for each conversation.

    Raises: RuntimeError when a child process dies.
    """
    stored = []
    prompts: Prompts = []
    machine: Answer = {}
    for codec in options.codecs:
        say(f"{options.num_conversations} conversations stored in {codec}")
        num_bytes, prompts, machine = _ours(options, codec)
        stored.append((codec, num_bytes))
    peer_bytes = _peer(options, prompts, say) if options.with_peer else None
    rows = [_row(options, codec, num_bytes, peer_bytes) for codec, num_bytes in stored]
    return Report("store", options.model.name, machine, tuple(rows))


def _ours(options: StoreOptions, codec: str) -> tuple[int, Prompts, Answer]:
    with TemporaryDirectory(prefix="reprise-bench-") as home, BenchProcess("ours") as ours:
        ours.ask(
            "load",
            model=str(options.model),
            threads=options.threads,
            context_length=options.context_length,
            kv_codec=codec,
            home=home,
        )
        system = question_of(ours, options.common_tokens)
        prompts = [
            _converse(ours, options, number, system) for number in range(options.num_conversations)
        ]
        return int(ours.ask("flush")["bytes"]), prompts, ours.ask("machine")


def _converse(ours: BenchProcess, options: StoreOptions, number: int, system: str) -> list[int]:
    own = question_of(ours, options.own_tokens, first=1000 * (number + 1))
    messages = [("system", system), ("user", own)]
    ours.ask("turn", conversation=f"c{number}", messages=messages, max_tokens=1)
    token_ids: list[int] = ours.ask("prompt_tokens", messages=messages)["token_ids"]
    return token_ids


def _peer(options: StoreOptions, prompts: Prompts, say: Say) -> int:
    """Return the bytes of llama.cpp's state files; each is removed as soon as it is measured."""
    say("the same conversations in llama.cpp's state files")
    with TemporaryDirectory(prefix="reprise-bench-") as home, BenchProcess("peer") as peer:
        peer.ask(
            "load",
            model=str(options.model),
            threads=options.threads,
            context_length=options.context_length,
            state_dir=home,
        )
        total = 0
        for token_ids in prompts:
            saved = peer.ask("save", token_ids=token_ids, name="state.bin", state_dir=home)
            total += int(saved["bytes"])
            (Path(home) / "state.bin").unlink()
        return total


def _row(options: StoreOptions, codec: str, num_bytes: int, peer_bytes: int | None) -> Row:
    suffix = "" if codec == "f16" else f"_{codec}"
    extra: dict[str, Any] = {"bytes": num_bytes, "codec": codec}
    if peer_bytes is not None:
        extra |= {"peer_bytes": peer_bytes, "of_peer_bytes": num_bytes / peer_bytes}
    return Row(
        f"{options.num_conversations}_conversations{suffix}",
        "MB",
        num_bytes / 1e6,
        None if peer_bytes is None else peer_bytes / 1e6,
        None if peer_bytes is None else peer_bytes / num_bytes,
        extra,
    )
