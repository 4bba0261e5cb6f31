"""A guess at how high a message will be, without laying it out: good enough for a scroll bar."""

from __future__ import annotations

from collections.abc import Iterable

from ui.chat.look import LINE_PX, Look
from ui.chat.message_model import Row

_CHAR_PX = 7.4
_FOOTER_PX = 32
_BUBBLE_PX = 20


def estimated_heights(rows: Iterable[Row], width: int, look: Look) -> list[int]:
    """Return heights in pixels for a column of this width; a thousand take a few milliseconds."""
    line, bubble, footer = look.px(LINE_PX), look.px(_BUBBLE_PX), look.px(_FOOTER_PX)
    per_line = max(10.0, width / (_CHAR_PX * look.zoom))
    heights = []
    for row in rows:
        text = row.message.content
        lines = _num_units(text) / per_line + 0.6 * text.count("\n")
        heights.append(int(max(1.0, lines) * line) + (bubble if row.is_user else footer))
    return heights


def _num_units(text: str) -> int:
    # A Chinese character takes three bytes and the room of two letters.
    return len(text) if text.isascii() else (len(text.encode()) + len(text)) // 2
