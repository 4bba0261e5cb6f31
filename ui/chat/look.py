"""A theme at a zoom: the fonts, lengths and text formats that the chat is drawn with."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from PySide6.QtGui import QBrush, QColor, QFont, QTextBlockFormat, QTextCharFormat, QTextOption

from ui.chat.elements import Paragraph, Rule, Span, Style
from ui.theme import (
    BODY_PX,
    CODE_PX,
    SMALL_PX,
    TINY_PX,
    Theme,
    body_font,
    load_theme,
    mono_font,
    number_font,
    zoomed,
)

COLUMN_PX = 760
LINE_PX = 23
CODE_LINE_PX = 20
INDENT_PX = 26
QUOTE_PX = 18
PARAGRAPH_GAP_PX = 14
TIGHT_GAP_PX = 5

_HEADING_PX = {1: 22, 2: 19, 3: 17}
_HEADING_GAP_PX = {1: 26, 2: 24, 3: 20}
_INLINE_CODE_PX = 13.5

QUOTE_PROPERTY = QTextBlockFormat.Property.UserProperty + 1
RULE_PROPERTY = QTextBlockFormat.Property.UserProperty + 2


@dataclass(frozen=True)
class Look:
    """theme: colour roles. zoom: factor on every length of text."""

    theme: Theme
    zoom: float = 1.0
    _formats: dict[tuple[Style, int, bool, str], QTextCharFormat] = field(
        default_factory=dict, compare=False, repr=False
    )

    @cached_property
    def roles(self) -> dict[str, str]:
        """The colour roles by name."""
        return self.theme.roles()

    @cached_property
    def _colors(self) -> dict[str, QColor]:
        return {role: QColor(value) for role, value in self.roles.items()}

    def px(self, pixels: float) -> int:
        """Scale a length by the zoom."""
        return zoomed(pixels, self.zoom)

    def body(self, *, pixels: float = BODY_PX) -> QFont:
        """Return the font of running text."""
        return body_font(self.zoom, pixels=pixels)

    def small(self) -> QFont:
        """Return the font of quiet lines, with digits of equal width."""
        return number_font(self.zoom, pixels=SMALL_PX)

    def tiny(self) -> QFont:
        """Return the smallest font, with digits of equal width."""
        return number_font(self.zoom, pixels=TINY_PX)

    def mono(self) -> QFont:
        """Return the font of code blocks."""
        return mono_font(self.zoom, pixels=CODE_PX)

    def color(self, role: str) -> QColor:
        """Return a colour role."""
        return self._colors[role]

    def char_format(
        self, span: Span, level: int = 0, *, is_quoted: bool = False
    ) -> QTextCharFormat:
        """Return the format of a span in a paragraph; level as in Paragraph."""
        key = (span.style, level, is_quoted, span.href)
        if key not in self._formats:
            self._formats[key] = self._char_format(span, level, is_quoted=is_quoted)
        return self._formats[key]

    def marker_format(self) -> QTextCharFormat:
        """Return the format of a list marker: quiet, digits of equal width."""
        result = QTextCharFormat()
        result.setFont(number_font(self.zoom, pixels=BODY_PX))
        result.setForeground(QBrush(self.color("muted")))
        return result

    def _char_format(self, span: Span, level: int, *, is_quoted: bool) -> QTextCharFormat:
        result = QTextCharFormat()
        pixels = _HEADING_PX.get(level, BODY_PX)
        result.setFont(self._font(span.style, pixels, is_heading=level > 0))
        result.setForeground(QBrush(self.color("muted" if is_quoted else "text")))
        if span.style & Style.CODE:
            result.setBackground(QBrush(self.color("code_bg")))
            result.setForeground(QBrush(self.color("code_text")))
        if span.href:
            self._make_link(result, span.href)
        return result

    def _font(self, style: Style, pixels: float, *, is_heading: bool) -> QFont:
        if style & (Style.CODE | Style.MATH):
            scale = pixels / BODY_PX
            font = mono_font(self.zoom, pixels=_INLINE_CODE_PX * scale)
        else:
            font = body_font(self.zoom, pixels=pixels)
        if style & Style.BOLD or is_heading:
            font.setWeight(QFont.Weight.DemiBold)
        font.setItalic(bool(style & (Style.ITALIC | Style.MATH)))
        font.setStrikeOut(bool(style & Style.STRIKE))
        return font

    def _make_link(self, result: QTextCharFormat, href: str) -> None:
        result.setAnchor(True)
        result.setAnchorHref(href)
        result.setToolTip(href)
        result.setForeground(QBrush(self.color("link")))
        result.setFontUnderline(True)

    def block_format(
        self, element: Paragraph | Rule, previous: Paragraph | Rule | None
    ) -> QTextBlockFormat:
        """Return margins and line height of an element that follows another one, or none."""
        result = QTextBlockFormat()
        result.setLeftMargin(self.px(INDENT_PX * element.indent + QUOTE_PX * element.quote))
        result.setTopMargin(self.px(_gap(element, previous)) if previous else 0)
        result.setProperty(QUOTE_PROPERTY, element.quote)
        if isinstance(element, Rule):
            result.setProperty(RULE_PROPERTY, True)
            return result
        line = _HEADING_PX.get(element.level, BODY_PX) * 1.3 if element.level else LINE_PX
        set_line_height(result, self.px(line))
        if element.marker:
            self._hang(result, element.marker)
        return result

    def _hang(self, result: QTextBlockFormat, marker: str) -> None:
        width = self.px(max(INDENT_PX - 5, 9 * len(marker)))
        tab = QTextOption.Tab()
        tab.position = width
        result.setTextIndent(-width)
        result.setTabPositions([tab])


def set_line_height(block: QTextBlockFormat, pixels: int) -> None:
    """Make lines at least this high, so that Chinese and Latin lines are spaced alike."""
    block.setLineHeight(pixels, QTextBlockFormat.LineHeightTypes.MinimumHeight.value)


def default_look() -> Look:
    """Return the look before a theme is set."""
    return Look(load_theme("light"))


def _gap(element: Paragraph | Rule, previous: Paragraph | Rule) -> float:
    if isinstance(element, Rule) or isinstance(previous, Rule):
        return PARAGRAPH_GAP_PX
    if element.level:
        return _HEADING_GAP_PX.get(element.level, 18)
    if previous.level:
        return 8
    return TIGHT_GAP_PX if element.is_tight else PARAGRAPH_GAP_PX
