"""A conversation's text on its way to a shared store, and from there. Knows no database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutgoingText:
    """A conversation as it is sent. parts: JSON of its messages by id. gone: ids of deleted ones.

    digest: other where something was said, changed or deleted.
    """

    id: str
    title: str
    document: bytes
    parts: dict[str, bytes]
    gone: tuple[str, ...]
    digest: bytes


@dataclass(frozen=True, slots=True)
class MergedText:
    """A conversation as it was to be sent right before another machine's text came, and after."""

    before: OutgoingText | None
    after: OutgoingText | None


@dataclass(frozen=True, slots=True)
class SharedText:
    """A conversation's text as it lies there: JSON documents of it and of its messages."""

    version: int
    document: bytes
    messages: tuple[bytes, ...]
