"""A guess at how high a message will be, without laying it out: good enough for a scroll bar."""

from __future__ import annotations

from ui.chat.look import LINE_PX, Look
from ui.chat.message_model import Row

_CHAR_PX = 7.4
_FOOTER_PX = 32
_BUBBLE_PX = 20


def estimated_height(row: Row, width: int, look: Look) -> int:
    """Return a height in pixels for a column of this width."""
    text = row.message.content
    units = len(text)
    if not text.isascii():
        # A Chinese character takes three bytes and the room of two letters.
        units = (len(text.encode()) + units) // 2
    share = 0.8 if row.is_user else 1
    per_line = max(10, width * share / (_CHAR_PX * look.zoom))
    lines = max(1, units / per_line + 0.6 * text.count("\n"))
    extra = _BUBBLE_PX if row.is_user else _FOOTER_PX
    return look.px(lines * LINE_PX + extra)
