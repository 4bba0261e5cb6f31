"""The content of a message: a stack of text, code and tables, kept in step with elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtWidgets import QWidget

from ui.chat.code_block import CodeBlock
from ui.chat.elements import Code, Element, Paragraph, Table
from ui.chat.look import INDENT_PX, Look
from ui.chat.rich_text import RichText
from ui.chat.table_block import TableBlock

_GAP_PX = 14
_HEADING_GAP_PX = 20

Group = tuple[Element, ...]
BodyPart = RichText | CodeBlock | TableBlock


class MessageBody(QWidget):
    """Shows elements. Parts whose elements did not change are left alone."""

    height_changed = Signal()

    def __init__(
        self, look: Look, parent: QWidget | None = None, *, can_fold: bool = False
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_StaticContents)
        self._look = look
        self._can_fold = can_fold
        self._groups: list[Group] = []
        self._parts: list[BodyPart] = []
        self._places: list[tuple[BodyPart, QRect]] = []
        self._fits: list[tuple[int, int] | None] = []
        self._was_live = False

    def set_elements(self, elements: Sequence[Element], *, is_live: bool = False) -> None:
        """Show these elements; is_live while more of them are on their way."""
        groups = _grouped(elements)
        is_settling, self._was_live = self._was_live and not is_live, is_live
        for index, group in enumerate(groups):
            if index < len(self._groups) and self._groups[index] == group and not is_settling:
                continue
            part = self._part_for(index, group[0])
            self._fits[index] = None
            self._fill(part, group, is_live=is_live and index == len(groups) - 1)
        self._drop_from(len(groups))
        self._groups = groups

    def fit(self, width: int) -> int:
        """Measure the stack in this width and return the height; ``place`` moves the parts."""
        self._places.clear()
        y = 0
        for index, (group, part) in enumerate(zip(self._groups, self._parts, strict=True)):
            y += self._gap_before(group[0]) if index else 0
            left = 0
            if isinstance(group[0], Code | Table):
                left = self._look.px(INDENT_PX * group[0].indent)
            height = self._fit_part(index, width - left)
            self._places.append((part, QRect(left, y, width - left, height)))
            y += height
        return y

    def place(self) -> None:
        """Move the parts to where ``fit`` wants them."""
        for part, area in self._places:
            if part.geometry() != area:
                part.setGeometry(area)

    def _fit_part(self, index: int, width: int) -> int:
        known = self._fits[index]
        if known is None or known[0] != width:
            known = self._fits[index] = width, self._parts[index].fit(width)
        return known[1]

    def _forget_fits(self) -> None:
        self._fits = [None] * len(self._parts)
        self.height_changed.emit()

    @property
    def parts(self) -> tuple[BodyPart, ...]:
        """The widgets of the stack, from top to bottom."""
        return tuple(self._parts)

    def ideal_width(self, width: int) -> int:
        """Return how much of this width the parts need."""
        self._fits = [None] * len(self._parts)
        needs = [
            part.ideal_width(width) if isinstance(part, RichText) else width for part in self._parts
        ]
        return max(needs, default=0)

    def selected_text(self) -> str:
        """Return the words that are selected, if any."""
        for part in self.findChildren(RichText):
            if part.textCursor().hasSelection():
                return part.textCursor().selection().toPlainText()
        return ""

    def plain_text(self) -> str:
        """Return the text as it reads, without the marks of Markdown."""
        return "\n\n".join(_plain(group) for group in self._groups)

    def _gap_before(self, element: Element) -> int:
        is_heading = isinstance(element, Paragraph) and element.level > 0
        return self._look.px(_HEADING_GAP_PX if is_heading else _GAP_PX)

    def _part_for(self, index: int, element: Element) -> BodyPart:
        kind = _part_type(element)
        if index < len(self._parts) and type(self._parts[index]) is kind:
            return self._parts[index]
        self._drop_from(index)
        part: BodyPart
        if kind is CodeBlock:
            part = code = CodeBlock(self._look, self, can_fold=self._can_fold)
            code.height_changed.connect(self._forget_fits)
        else:
            part = kind(self._look, self)
        self._parts.append(part)
        self._fits.append(None)
        part.show()
        return part

    def _fill(self, part: BodyPart, group: Group, *, is_live: bool) -> None:
        first = group[0]
        if isinstance(part, CodeBlock) and isinstance(first, Code):
            part.set_code(first, is_live=is_live)
        elif isinstance(part, TableBlock) and isinstance(first, Table):
            part.set_table(first)
        elif isinstance(part, RichText):
            part.set_elements([e for e in group if not isinstance(e, Code | Table)])

    def _drop_from(self, index: int) -> None:
        for part in self._parts[index:]:
            part.hide()
            part.deleteLater()
        self._places.clear()
        del self._parts[index:]
        del self._fits[index:]
        del self._groups[index:]


def _grouped(elements: Iterable[Element]) -> list[Group]:
    groups: list[Group] = []
    for kind, run in groupby(elements, key=_part_type):
        group = tuple(run)
        groups += [group] if kind is RichText else [(element,) for element in group]
    return groups


def _part_type(element: Element) -> type[BodyPart]:
    if isinstance(element, Code):
        return CodeBlock
    return TableBlock if isinstance(element, Table) else RichText


def _plain(group: Group) -> str:
    return "\n\n".join(filter(None, (_plain_element(element) for element in group)))


def _plain_element(element: Element) -> str:
    if isinstance(element, Paragraph):
        marker = f"{element.marker} " if element.marker else ""
        return "  " * max(0, element.indent - 1) + marker + element.text
    if isinstance(element, Code):
        return element.text
    if isinstance(element, Table):
        return "\n".join(
            "\t".join("".join(span.text for span in cell) for cell in row) for row in element.rows
        )
    return ""
