"""Texts of a given length in tokens, the same on every machine and in every run."""

from __future__ import annotations

from app.bench.process import BenchProcess


def text_of(ours: BenchProcess, num_tokens: int, *, first: int = 0) -> str:
    """Return a text that makes a prompt of just under num_tokens tokens.

    first: number of its first entry; texts with other numbers differ from their start.
    """
    per_entry = len(prompt_tokens(ours, entries(100, first=first))) / 100
    count = max(1, int(num_tokens / per_entry))
    while count > 1 and len(prompt_tokens(ours, entries(count, first=first))) > num_tokens:
        count -= 1
    return entries(count, first=first)


def question_of(ours: BenchProcess, num_tokens: int, *, first: int = 0) -> str:
    """Return a text of just under num_tokens tokens, whatever the template adds to it."""
    return text_of(ours, num_tokens + len(prompt_tokens(ours, "")), first=first)


def prompt_tokens(ours: BenchProcess, text: str) -> list[int]:
    """Return the token ids of a conversation that is this one question."""
    ids: list[int] = ours.ask("prompt_tokens", messages=[("user", text)])["token_ids"]
    return ids


def entries(count: int, *, first: int = 0) -> str:
    """Return count lines of a keeper's log."""
    return "\n".join(_entry(number) for number in range(first, first + count))


def _entry(number: int) -> str:
    places = ("harbour", "library", "orchard", "station", "workshop", "observatory")
    deeds = ("repaired the clock", "counted the boats", "drew a map", "lit the lamps")
    place, deed = places[number % len(places)], deeds[number * 7 % len(deeds)]
    return f"Entry {number}: at the {place}, keeper {number * 37 % 101} {deed}."
