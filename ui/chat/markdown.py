"""Markdown to elements. HTML stays text, pictures stay names, every block stands for itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ui.chat.elements import Code, Element, Paragraph, Rule, Span, Style, Table
from ui.chat.math_rules import use_math
from ui.chat.spans import inline_spans

_TASKS = {"[ ] ": "☐", "[x] ": "☑", "[X] ": "☑"}
_BULLETS = ("•", "◦", "▪")


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block: its lines in the source and the elements it became.

    start, end: character offsets. kind: the first token's type.
    """

    start: int
    end: int
    kind: str
    elements: tuple[Element, ...]


@cache
def parser() -> MarkdownIt:
    """Return the one parser: CommonMark with tables, strike-through and formulas."""
    md = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    # A link definition would let a late line change an early block; replies hardly use them.
    md.disable("reference")
    use_math(md)
    return md


def parse(text: str) -> list[Element]:
    """Return the elements of a whole text."""
    return [element for block in parse_blocks(clean(text)) for element in block.elements]


def clean(text: str) -> str:
    """Return text with the line ends that offsets are counted in."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def parse_blocks(text: str, *, offset: int = 0) -> list[Block]:
    """Return the top-level blocks of a cleaned text; offset is added to their places."""
    starts = _line_starts(text)
    blocks = []
    for tokens in _top_level(parser().parse(text)):
        first, last = tokens[0].map or [0, 0]
        elements = tuple(_Walker(text).walk(tokens))
        blocks.append(
            Block(starts[first] + offset, starts[last] + offset, tokens[0].type, elements)
        )
    return blocks


def is_fence_closed(token: Token, text: str) -> bool:
    """Tell whether a fence has its closing line yet."""
    first, last = token.map or [0, 0]
    lines = text.split("\n", last)[first:last]
    closing = lines[-1].strip().lstrip("> ") if len(lines) > 1 else ""
    return closing.startswith(token.markup) and not closing.strip(token.markup[0])


def _line_starts(text: str) -> list[int]:
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    starts[-1] = len(text)
    return [*starts, len(text)]


def _top_level(tokens: Sequence[Token]) -> list[list[Token]]:
    groups: list[list[Token]] = []
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            groups.append([])
        groups[-1].append(token)
    return groups


@dataclass(slots=True)
class _Walker:
    """Walks the tokens of one block and keeps where it is: in which list, quote and cell."""

    source: str
    indent: int = 0
    quote: int = 0
    marker: str = ""
    level: int = 0
    is_tight: bool = False
    rows: list[list[tuple[Span, ...]]] = field(default_factory=list)
    aligns: list[str] = field(default_factory=list)
    is_in_table: bool = False
    elements: list[Element] = field(default_factory=list)

    def walk(self, tokens: Sequence[Token]) -> list[Element]:
        for token in tokens:
            self._take(token)
        return self.elements

    def _take(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._add_inline(inline_spans(token.children or ()))
            case "fence" | "code_block":
                self._add_code(token)
            case "math_block":
                self._add_paragraph((Span(token.content, Style.MATH),))
            case "hr":
                self.elements.append(Rule(self.indent, self.quote))
            case "paragraph_open":
                self.is_tight = token.hidden
            case "heading_open":
                self.level = int(token.tag[1])
            case "heading_close":
                self.level = 0
            case _:
                self._take_container(token)

    def _take_container(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open" | "ordered_list_open":
                self._flush_marker()
                self.indent += 1
            case "bullet_list_close" | "ordered_list_close":
                self.indent -= 1
            case "list_item_open":
                self.marker = self._marker_of(token)
            case "list_item_close":
                self._flush_marker()
            case "blockquote_open":
                self._flush_marker()
                self.quote += 1
            case "blockquote_close":
                self.quote -= 1
            case _:
                self._take_table(token)

    def _take_table(self, token: Token) -> None:
        match token.type:
            case "table_open":
                self.rows, self.aligns, self.is_in_table = [], [], True
            case "tr_open":
                self.rows.append([])
            case "th_open":
                self.aligns.append(_align(token))
            case "table_close":
                self.is_in_table = False
                rows = tuple(tuple(row) for row in self.rows)
                self.elements.append(Table(rows, tuple(self.aligns), self.indent))

    def _marker_of(self, token: Token) -> str:
        if token.info:
            return f"{token.info}{token.markup}"
        return _BULLETS[min(self.indent, len(_BULLETS)) - 1]

    def _add_inline(self, spans: tuple[Span, ...]) -> None:
        if self.is_in_table:
            self.rows[-1].append(spans)
        else:
            self._add_paragraph(spans)

    def _add_paragraph(self, spans: tuple[Span, ...]) -> None:
        marker, self.marker = self.marker, ""
        if marker and spans and (box := _TASKS.get(spans[0].text[:4])):
            marker, spans = box, (replace(spans[0], text=spans[0].text[4:]), *spans[1:])
        self.elements.append(
            Paragraph(spans, self.level, self.indent, marker, self.quote, self.is_tight)
        )

    def _add_code(self, token: Token) -> None:
        self._flush_marker()
        is_closed = token.type == "code_block" or is_fence_closed(token, self.source)
        text = token.content.rstrip()
        self.elements.append(Code(text, token.info.strip(), self.indent, is_closed))

    def _flush_marker(self) -> None:
        # A list item that begins with code, a list or nothing still shows its bullet.
        if self.marker:
            self.is_tight = True
            self._add_paragraph(())


def _align(token: Token) -> str:
    style = str(token.attrGet("style") or "")
    return style.removeprefix("text-align:")
