"""What a search text means: words to look for, and the piece of text shown for a hit.

Every word must occur somewhere, in any order, also inside longer words. No SQL is run here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

OPEN, CLOSE = "\u2068", "\u2069"

# The index holds every run of three characters, so shorter words need a scan.
_TRIGRAM = 3
_CONTEXT = 40


@dataclass(frozen=True, slots=True)
class Query:
    """A search text taken apart. words: as typed, without blanks and quotes."""

    words: tuple[str, ...]

    @property
    def match(self) -> str:
        """The FTS5 expression of the words the index can find; "" when there is none."""
        return " AND ".join(f'"{word}"' for word in self.words if len(word) >= _TRIGRAM)

    @property
    def likes(self) -> list[str]:
        """LIKE patterns (escape character: backslash) of the words too short for the index."""
        return [like(word) for word in self.words if len(word) < _TRIGRAM]


def parse(text: str) -> Query:
    """Split a search text into words; "quoted text" is one word."""
    pieces = re.findall(r'"([^"]+)"|([^\s"]+)', text.replace("\0", ""))
    return Query(
        tuple(quoted.strip() or plain for quoted, plain in pieces if quoted.strip() or plain)
    )


def like(word: str) -> str:
    """Return the LIKE pattern for text that contains the word."""
    escaped = re.sub(r"([\\%_])", r"\\\1", word)
    return f"%{escaped}%"


def snippet(text: str, words: Sequence[str]) -> str:
    """Return the text around the first word found, on one line, every word marked."""
    finder = re.compile("|".join(re.escape(word) for word in words) or "$^", re.IGNORECASE)
    found = finder.search(text)
    start = max(0, found.start() - _CONTEXT) if found else 0
    end = (found.end() if found else 0) + 2 * _CONTEXT
    piece = " ".join(finder.sub(lambda hit: f"{OPEN}{hit[0]}{CLOSE}", text[start:end]).split())
    return ("…" if start else "") + piece + ("…" if end < len(text) else "")
