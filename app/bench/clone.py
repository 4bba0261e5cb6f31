"""``reprise bench clone``: how a thinned-out copy goes on, against dropping the oldest tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from app.bench.process import Answer, BenchProcess
from app.bench.report import Report, Row

QUESTION = "What is this text about? Name what matters most in it."
OTHER_QUESTION = "Say hello."

Say = Callable[[str], None]
Messages = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class CloneOptions:
    """What to measure.

    Of each text, two parts of num_tokens are read in conversations: one is copied after the
    question about it was read, the other one before. num_drawn: tokens that are compared then.
    """

    model: Path
    threads: int
    texts: tuple[Path, ...]
    decays: tuple[float, ...] = (0.9, 0.8, 0.5)
    num_tokens: int = 1100
    num_drawn: int = 64


@dataclass(frozen=True, slots=True)
class _Conversation:
    """token_ids are in the copy, next_ids are read by the copy."""

    name: str
    token_ids: list[int]
    next_ids: list[int]


def measure_clone(options: CloneOptions, say: Say) -> Report:
    """Measure every part kept on every conversation, and on all of them together.

    Raises: RuntimeError when a child process dies; OSError when a text cannot be read.
    """
    with BenchProcess("ours") as ours:
        ours.ask(
            "load",
            model=str(options.model),
            threads=options.threads,
            context_length=2 * options.num_tokens,
            hot_budget_bytes=4 << 30,
        )
        found = [one for text in options.texts for one in _conversations(ours, options, text)]
        scores = {one.name: _scores(ours, options, one, say) for one in found}
        machine = ours.ask("machine")
    rows: list[Row] = []
    for at, decay in enumerate(options.decays):
        of_decay = {name: every[at] for name, every in scores.items()}
        rows.append(_row(f"decay_{decay}", list(of_decay.values())))
        rows += [_row(f"decay_{decay}_{name}", [score]) for name, score in of_decay.items()]
    return Report("clone", options.model.name, machine, tuple(rows))


def _conversations(
    ours: BenchProcess, options: CloneOptions, path: Path
) -> tuple[_Conversation, ...]:
    """Return the conversations about two parts of a text; the second starts where one ends."""
    text = path.read_text(encoding="utf-8")
    size = _part_size(ours, options, text)
    first, second = text[:size], text[size : 2 * size]
    asked = _prompt(ours, [("user", f"{first}\n\n{QUESTION}")])
    told: Messages = [("user", second), ("assistant", "I have read it.")]
    unasked = _prompt(ours, [*told, ("user", QUESTION)])
    num_known = _common(unasked, _prompt(ours, [*told, ("user", OTHER_QUESTION)]))
    return (
        _Conversation(f"{path.stem}_asked", asked[:-1], asked[-1:]),
        _Conversation(f"{path.stem}_unasked", unasked[:num_known], unasked[num_known:]),
    )


def _part_size(ours: BenchProcess, options: CloneOptions, text: str) -> int:
    """Return the letters of a part: num_tokens of them, or half of a text that has fewer."""
    num_tokens = len(_prompt(ours, [("user", text)]))
    return int(len(text) * min(0.5, options.num_tokens / num_tokens))


def _prompt(ours: BenchProcess, messages: Messages) -> list[int]:
    ids: list[int] = ours.ask("prompt_tokens", messages=messages)["token_ids"]
    return ids


def _common(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _scores(
    ours: BenchProcess, options: CloneOptions, conversation: _Conversation, say: Say
) -> list[Answer]:
    say(f"{conversation.name}: copies of {len(conversation.token_ids)} tokens")
    answer = ours.ask(
        "clones",
        token_ids=conversation.token_ids,
        next_ids=conversation.next_ids,
        decays=options.decays,
        num_drawn=options.num_drawn,
    )
    scores: list[Answer] = answer["scores"]
    return scores


def _row(name: str, scores: list[Answer]) -> Row:
    """Return means over conversations, each counting the same."""
    kept = fmean(score["num_kept"] / score["num_tokens"] for score in scores)
    copy, latest = (_means([score[kind] for score in scores]) for kind in ("copy", "latest"))
    extra: dict[str, Any] = {"kept": kept, "agreement": copy["top1"]}
    extra |= {"agreement_drop_oldest": latest["top1"]}
    for figure in ("kl", "num_identical"):
        extra |= {figure: copy[figure], f"{figure}_drop_oldest": latest[figure]}
    return Row(name, "% same tokens", 100 * copy["top1"], extra=extra)


def _means(figures: list[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(one[name] for one in figures) for name in figures[0]}
