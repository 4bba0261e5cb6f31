"""What an edit costs: tokens that would be read again, the time for it, the memory of a branch.

Pure. Where a reply tells its counts they are exact, between them they follow the length of the
text, and then it is "about".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.conversation import Message, Readiness
from ui.chat.words import count, duration
from ui.formats import size_text

CHARS_PER_TOKEN = 4.0
_MIN_TIMED_TOKENS = 32

translate = QCoreApplication.translate


@dataclass(frozen=True, slots=True)
class Price:
    """tokens: to be read again. seconds, branch_bytes: None where nothing has been measured."""

    tokens: int
    is_exact: bool
    seconds: float | None = None
    branch_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Borders:
    """Tokens before each message of a path, and before what would follow its last one."""

    starts: tuple[float, ...]
    exact: tuple[bool, ...]


def borders(path: Sequence[Message]) -> Borders:
    """Return where each message begins, in tokens; exact where a reply's counts say so."""
    known = _known(path)
    lengths = [max(1.0, len(message.content) / CHARS_PER_TOKEN) for message in path]
    starts = [0.0]
    for length in lengths:
        starts.append(starts[-1] + length)
    places = sorted(known)
    for before, after in zip([None, *places], [*places, None], strict=True):
        _fit(starts, known, before, after)
    return Borders(tuple(starts), tuple(place in known for place in range(len(starts))))


def price_of_reading(
    path: Sequence[Message],
    first: int,
    last: int,
    readiness: Readiness | None,
    *,
    bytes_per_token: int | None = None,
) -> Price:
    """Return what going on from message ``last`` costs when ``first`` is the first to change.

    What lies before ``first`` is read only as far as it is not ready. branch_bytes: of all that
    follows, which both branches would hold for themselves.
    """
    edges = borders(path)
    before, after = edges.starts[first], edges.starts[last]
    ready = before if readiness is None else min(before, readiness.ready_tokens)
    tokens = round(before - ready + max(0.0, after - before))
    speed = _speed(path, readiness)
    tail = edges.starts[-1] - before
    return Price(
        tokens,
        edges.exact[first] and edges.exact[last],
        tokens / speed if speed else None,
        round(tail * bytes_per_token) if bytes_per_token else None,
    )


def price_words(price: Price) -> str:
    """Return a price in a line or two."""
    if price.tokens <= 1:
        words = translate("price", "Nothing has to be read again")
    else:
        number = count(price.tokens)
        about = translate("price", "Reads {0} tokens again")
        if not price.is_exact:
            about = translate("price", "Reads about {0} tokens again")
        words = about.format(number)
        if price.seconds is not None:
            words += f", {duration(price.seconds)}"
    if price.branch_bytes:
        branch = translate("price", "A second branch takes about {0}")
        words += "\n" + branch.format(size_text(price.branch_bytes))
    return words


def _known(path: Sequence[Message]) -> dict[int, float]:
    known = {0: 0.0}
    for place, message in enumerate(path):
        if message.stats is not None:
            usage = message.stats.usage
            known[place] = float(usage.prompt_tokens)
            known[place + 1] = float(usage.prompt_tokens + usage.completion_tokens)
    return known


def _fit(
    starts: list[float], known: dict[int, float], before: int | None, after: int | None
) -> None:
    """Stretch the guesses between two known places, or move those behind the last one."""
    if before is None:
        return
    if after is None:
        shift = known[before] - starts[before]
        starts[before:] = [start + shift for start in starts[before:]]
        return
    low, high = starts[before], starts[after]
    scale = (known[after] - known[before]) / (high - low)
    for place in range(before + 1, after):
        starts[place] = known[before] + (starts[place] - low) * scale
    starts[before] = known[before]
    rest = known[after] - high
    starts[after:] = [start + rest for start in starts[after:]]


def _speed(path: Sequence[Message], readiness: Readiness | None) -> float | None:
    """Return tokens read per second, as the latest reply that had to read enough measured it."""
    for message in reversed(path):
        if message.stats is None or message.stats.timing.prefill_ms <= 0:
            continue
        read = message.stats.usage.recomputed_tokens
        if read >= _MIN_TIMED_TOKENS:
            return read / message.stats.timing.prefill_ms * 1000
    if readiness is not None and readiness.unread_tokens and readiness.seconds > 0:
        return readiness.unread_tokens / readiness.seconds
    return None
