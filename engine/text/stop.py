"""Stop strings in a growing text, also where they lie across several pieces."""

from __future__ import annotations

from collections.abc import Iterable


def held_back_length(text: str, markers: Iterable[str]) -> int:
    """Return the length of the longest end of text that may begin one of the markers."""
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text)), longest, -1):
            if marker.startswith(text[-length:]):
                longest = length
                break
    return longest


class StopMatcher:
    """Passes text on until a stop string appears; the stop string itself is never shown."""

    def __init__(self, stop: Iterable[str]) -> None:
        self._stop = tuple(text for text in stop if text)
        self._pending = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Take a piece of text; return what can be shown and whether a stop string was met.

        The longest end that may begin a stop string is held back for the next piece.
        """
        if not self._stop:
            return text, False
        text = self._pending + text
        found = [position for stop in self._stop if (position := text.find(stop)) >= 0]
        if found:
            self._pending = ""
            return text[: min(found)], True
        held = held_back_length(text, self._stop)
        self._pending = text[len(text) - held :]
        return text[: len(text) - held], False

    def flush(self) -> str:
        """Return what is held back when the text ends without a stop string."""
        text, self._pending = self._pending, ""
        return text
