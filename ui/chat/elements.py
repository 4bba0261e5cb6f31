"""What a message is made of once its Markdown is read: flat values, no Qt, no markdown-it.

Nesting is flattened to an indent and a quote depth, so that a text widget can hold each element as
exactly one block and a growing reply can be compared element by element.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto


class Style(Flag):
    """How a span of text looks."""

    PLAIN = 0
    BOLD = auto()
    ITALIC = auto()
    STRIKE = auto()
    CODE = auto()
    MATH = auto()


@dataclass(frozen=True, slots=True)
class Span:
    """Text of one look. href: an http or https address, or "" for no link."""

    text: str
    style: Style = Style.PLAIN
    href: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One block of running text.

    level: 1 to 6 for a heading, 0 for text. indent: list depth. marker: "•" or "3." on the first
    block of a list item. quote: depth of quotation. is_tight: belongs to a list without gaps.
    """

    spans: tuple[Span, ...]
    level: int = 0
    indent: int = 0
    marker: str = ""
    quote: int = 0
    is_tight: bool = False

    @property
    def text(self) -> str:
        """The words alone."""
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal rule."""

    indent: int = 0
    quote: int = 0


@dataclass(frozen=True, slots=True)
class Code:
    """A block of code. info: the words after the fence: a language or a file name."""

    text: str
    info: str = ""
    indent: int = 0
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, the header first. aligns: "left", "center", "right" or "" per column."""

    rows: tuple[tuple[tuple[Span, ...], ...], ...]
    aligns: tuple[str, ...]
    indent: int = 0


Element = Paragraph | Rule | Code | Table
