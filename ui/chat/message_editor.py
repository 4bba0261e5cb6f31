"""Editing a message where it stands. Saving makes a new version; the old one stays."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPushButton, QWidget

from ui.chat.look import Look
from ui.chat.parts import RoundedField, quiet_label
from ui.chat.plain_editor import PlainEditor

_PADDING_PX = 14
_BUTTONS_PX = 44
_MAX_TEXT_PX = 420


class MessageEditor(RoundedField):
    """A field with Save and Cancel; Ctrl+Enter saves, Esc cancels."""

    saved = Signal(str)
    cancelled = Signal()
    text_changed = Signal(str)
    height_changed = Signal()

    def __init__(
        self, look: Look, text: str, parent: QWidget | None = None, *, is_user: bool
    ) -> None:
        super().__init__(look, parent, fill="raised", outline="focus", radius=10)
        self._text = PlainEditor(look, self)
        self._text.sends_on_enter = False
        self._text.setAccessibleName(self.tr("Edit message"))
        self._text.set_text(text)
        self._note = quiet_label(look, self.tr("The earlier version is kept"), parent=self)
        self._save = QPushButton(self.tr("Send") if is_user else self.tr("Save"), self)
        self._save.setProperty("kind", "primary")
        self._cancel = QPushButton(self.tr("Cancel"), self)
        self._cancel.setProperty("kind", "quiet")
        self._save.clicked.connect(self._submit)
        self._cancel.clicked.connect(self.cancelled)
        self._text.submitted.connect(self._submit)
        self._text.cancelled.connect(self.cancelled)
        self._text.textChanged.connect(lambda: self.text_changed.emit(self._text.text()))
        self._text.height_changed.connect(self.height_changed)

    @property
    def editor(self) -> PlainEditor:
        """The field itself."""
        return self._text

    def fit(self, width: int) -> int:
        """Lay field and buttons out in this width and return the height."""
        pad, look = self._look.px(_PADDING_PX), self._look
        self._text.resize(width - 2 * pad, self._text.height())
        text_height = min(self._text.wanted_height(), look.px(_MAX_TEXT_PX))
        self._text.setGeometry(pad, pad, width - 2 * pad, text_height)
        y = pad + text_height + 8
        x = width - pad
        for button in (self._save, self._cancel):
            size = button.sizeHint()
            x -= size.width()
            button.setGeometry(x, y, size.width(), size.height())
            x -= 8
        self._note.setGeometry(pad, y, max(0, x - pad), self._save.height())
        return y + look.px(_BUTTONS_PX)

    def _submit(self) -> None:
        if self._text.text().strip():
            self.saved.emit(self._text.text())
        else:
            self.cancelled.emit()
