"""A block of code with its language and a Copy button."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QToolButton, QWidget

from ui.chat.code_text import CodeText
from ui.chat.elements import Code
from ui.chat.look import CODE_LINE_PX, Look
from ui.chat.parts import RoundedField, quiet_label
from ui.icons import icon
from ui.theme import beside_icon

HEADER_PX = 34
COLLAPSED_LINES = 12
_PADDING_PX = 14
_COPIED_MS = 1500


class CodeBlock(RoundedField):
    """Code under a header. An attached file of many lines is folded until it is asked for."""

    height_changed = Signal()

    def __init__(
        self, look: Look, parent: QWidget | None = None, *, can_fold: bool = False
    ) -> None:
        super().__init__(look, parent, fill="code_bg", outline="hairline", radius=8)
        self._can_fold = can_fold
        self._is_folded = can_fold
        self._title = quiet_label(look, parent=self)
        self._copy = self._text_button("copy", beside_icon(self.tr("Copy")))
        self._copy.clicked.connect(self._copy_code)
        self._fold = self._text_button("chevron-down", "")
        self._fold.clicked.connect(self._toggle_fold)
        self._text = CodeText(look, self)
        self._reset = QTimer(self, singleShot=True, interval=_COPIED_MS)
        self._reset.timeout.connect(self._show_copy)

    @property
    def copy_button(self) -> QToolButton:
        """The button that copies the code."""
        return self._copy

    def set_code(self, code: Code, *, is_live: bool = False) -> None:
        """Show code; is_live while more of it is on its way."""
        self._title.setText(code.info or self.tr("text"))
        self._text.setAccessibleName(self.tr("Code, {0}").format(self._title.text()))
        self._text.set_code(code, is_live=is_live)

    def fit(self, width: int) -> int:
        """Measure header and code in this width and return the height."""
        text_height = self._text_height(width)
        fold = self._fold.sizeHint().height() + 4 - self._look.px(4) if self._is_foldable else 0
        return self._look.px(HEADER_PX) + text_height + fold + self._look.px(10)

    @property
    def _is_foldable(self) -> bool:
        num_lines = self._text.document().blockCount()
        return self._can_fold and num_lines > COLLAPSED_LINES + 4

    def _text_height(self, width: int) -> int:
        if self._is_foldable and self._is_folded:
            return self._look.px(CODE_LINE_PX) * COLLAPSED_LINES
        return self._text.fit(width - 2 * self._look.px(_PADDING_PX))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay header and code out."""
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        look, pad, width = self._look, self._look.px(_PADDING_PX), self.width()
        header = look.px(HEADER_PX)
        copy_width = self._copy.sizeHint().width()
        self._title.setGeometry(pad, 0, max(0, width - copy_width - 2 * pad), header)
        self._copy.setGeometry(width - copy_width - 6, 4, copy_width, header - 6)
        text_height = self._text_height(width)
        self._text.setGeometry(pad, header, width - 2 * pad, text_height)
        self._text.verticalScrollBar().setValue(0)
        self._fold.setVisible(self._is_foldable)
        if self._is_foldable:
            self._place_fold(header + text_height + 4)

    def _place_fold(self, top: int) -> None:
        words = self.tr("Show all {0} lines") if self._is_folded else self.tr("Show fewer lines")
        self._fold.setText(beside_icon(words.format(self._text.document().blockCount())))
        size = self._fold.sizeHint()
        self._fold.setGeometry(self._look.px(6), top, size.width(), size.height())

    def _toggle_fold(self) -> None:
        self._is_folded = not self._is_folded
        name = "chevron-down" if self._is_folded else "chevron-up"
        self._fold.setIcon(icon(name, self._look.theme.muted))
        self.height_changed.emit()

    def _copy_code(self) -> None:
        QGuiApplication.clipboard().setText(self._text.code)
        self._copy.setIcon(icon("check", self._look.theme.accent))
        self._copy.setText(beside_icon(self.tr("Copied")))
        self._reset.start()
        self._place()

    def _show_copy(self) -> None:
        self._copy.setIcon(icon("copy", self._look.theme.muted))
        self._copy.setText(beside_icon(self.tr("Copy")))
        self._place()

    def _text_button(self, name: str, words: str) -> QToolButton:
        button = QToolButton(self)
        button.setIcon(icon(name, self._look.theme.muted))
        button.setIconSize(QSize(self._look.px(14), self._look.px(14)))
        button.setText(words)
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setStyleSheet(
            f"color: {self._look.theme.muted}; font-size: {self._look.px(12)}px; padding: 3px 6px;"
        )
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        return button
