"""One line above the chat about the model loaded, said once: it was not made for conversations."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.events import ModelInfo
from ui.chat.look import Look
from ui.chat.parts import icon_button, quiet_label
from ui.icons import icon, pixmap


class ModelNote(QWidget):
    """Hidden for models with a chat template, and once it was read."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._path = ""
        self._read: set[str] = set()
        self._sign = QLabel(self)
        self._words = quiet_label(look, parent=self)
        self._words.setWordWrap(True)
        self._close = icon_button(look, "x", "", self.dismiss, parent=self)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 8, 8, 8)
        layout.setSpacing(10)
        layout.addWidget(self._sign, 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self._words, 1)
        layout.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self.set_look(look)
        self.retranslate()
        self.hide()

    def set_model(self, model: ModelInfo | None) -> None:
        """Say it of a model that has no chat template and was not spoken of yet."""
        self._path = model.path if model is not None and not model.has_chat_template else ""
        self.setVisible(bool(self._path) and self._path not in self._read)

    def set_look(self, look: Look) -> None:
        """Change theme or zoom."""
        self._look = look
        px = look.px
        self._sign.setPixmap(pixmap("info", look.theme.warm_text, px(16)))
        self._words.setStyleSheet(f"color: {look.theme.muted}; font-size: {px(13)}px;")
        self._close.setIcon(icon("x", look.theme.muted))
        self._close.setIconSize(QSize(px(14), px(14)))
        self._close.setFixedSize(px(24), px(24))

    def retranslate(self) -> None:
        """Take over the language."""
        self._words.setText(
            self.tr(
                "This is a base model without a chat template: it goes on with a text rather than "
                "answering, so replies may ramble or speak for you. An “instruct” or “chat” "
                "version of it answers better."
            )
        )
        self._close.setToolTip(self.tr("Got it"))
        self._close.setAccessibleName(self.tr("Got it"))

    def text(self) -> str:
        """Return the words."""
        return self._words.text()

    def dismiss(self) -> None:
        """Say it of this model no more."""
        self._read.add(self._path)
        self.hide()
