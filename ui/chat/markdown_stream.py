"""Markdown that grows at its end: only what can still change is read again."""

from __future__ import annotations

import re
from dataclasses import replace

from ui.chat.elements import Code, Element
from ui.chat.markdown import Block, clean, parse_blocks

_FENCE = re.compile(r"(`{3,}|~{3,})[^\n]*\n")


class MarkdownStream:
    """The elements of a text that is appended to.

    ``elements`` always equals ``parse(text)``. Finished blocks keep their element objects, so a
    view can tell by identity what has not changed.
    """

    def __init__(self, text: str = "") -> None:
        self._text = ""
        self._blocks: list[Block] = []
        self.set_text(text)

    @property
    def text(self) -> str:
        """What has been taken in so far."""
        return self._text

    @property
    def elements(self) -> list[Element]:
        """The elements of the whole text."""
        return [element for block in self._blocks for element in block.elements]

    def set_text(self, text: str) -> None:
        """Take a text; cheap when it continues the one before."""
        text = clean(text)
        if text != self._text and self._text and text.startswith(self._text):
            self._grow(text)
        elif text != self._text:
            self._text, self._blocks = text, parse_blocks(text)

    def append(self, text: str) -> None:
        """Take a piece that follows."""
        self._grow(self._text + clean(text))

    def _grow(self, text: str) -> None:
        added, self._text = text[len(self._text) :], text
        if not self._grow_open_code(added):
            self._read_tail()

    def _read_tail(self) -> None:
        keep = self._num_settled()
        start = self._blocks[keep].start if keep < len(self._blocks) else 0
        self._blocks[keep:] = parse_blocks(self._text[start:], offset=start)

    def _num_settled(self) -> int:
        """Blocks that no further text can change: all but the last, or all but the last two."""
        last = len(self._blocks) - 1
        if last < 1:
            return 0
        return last if self._is_border_final(self._blocks[last]) else last - 1

    def _is_border_final(self, block: Block) -> bool:
        # After a blank line a letter in the first column can only begin a new paragraph. Anything
        # else ("1", "-", "|") may yet turn out to belong to the block above.
        return self._text[block.start].isalpha() and self._text[: block.start].endswith("\n\n")

    def _grow_open_code(self, added: str) -> bool:
        """Append to a fence that stays open, without reading it again."""
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.kind != "fence":
            return False
        code = block.elements[0]
        assert isinstance(code, Code)
        opening = _FENCE.match(self._text, block.start)
        if code.is_closed or opening is None or opening.end() > len(self._text) - len(added):
            return False
        line_start = self._text.rfind("\n", 0, len(self._text) - len(added)) + 1
        if _may_close(self._text[line_start:], opening[1]):
            return False
        body = self._text[opening.end() :].rstrip()
        grown = replace(code, text=body)
        self._blocks[-1] = replace(block, end=len(self._text), elements=(grown,))
        return True


def _may_close(text: str, fence: str) -> bool:
    return any(line.strip().startswith(fence) for line in text.split("\n"))
