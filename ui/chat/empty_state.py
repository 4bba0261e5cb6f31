"""What an empty conversation says: what to do next."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from ui.chat.look import Look

_WIDTH_PX = 520


class EmptyState(QWidget):
    """Without a model: how to get one. With one: three things to ask."""

    prompt_chosen = Signal(str)
    model_requested = Signal()

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._model_name = ""
        self._content: QWidget | None = None
        self._layout = QHBoxLayout(self)
        self._layout.setContentsMargins(24, 24, 24, 24)
        self._build()

    def set_model_name(self, name: str) -> None:
        """Say which model is loaded; "" for none."""
        if name != self._model_name:
            self._model_name = name
            self._build()

    def set_look(self, look: Look) -> None:
        """Change theme or zoom."""
        self._look = look
        self._build()

    def retranslate(self) -> None:
        """Take over the language."""
        self._build()

    def prompts(self) -> tuple[str, ...]:
        """Return what could be asked."""
        return (
            self.tr("Explain why the sky is blue, first in one sentence, then in five."),
            self.tr("Write a Python function that finds the longest word in a text, with a test."),
            self.tr("Help me plan a quiet weekend by the sea for two people."),
        )

    def _build(self) -> None:
        if self._content is not None:
            self._content.hide()
            self._content.deleteLater()
        self._content = QWidget(self)
        self._content.setFixedWidth(self._look.px(_WIDTH_PX))
        column = QVBoxLayout(self._content)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(self._look.px(8))
        column.addStretch(2)
        if self._model_name:
            self._add_prompts(column)
        else:
            self._add_model_words(column)
        column.addStretch(3)
        self._layout.addWidget(self._content, 0, Qt.AlignmentFlag.AlignHCenter)

    def _add_prompts(self, column: QVBoxLayout) -> None:
        column.addWidget(self._title(self.tr("What would you like to talk about?")))
        words = self.tr("{0} answers on this computer. Nothing you write leaves it.")
        column.addWidget(self._text(words.format(self._model_name)))
        column.addSpacing(self._look.px(16))
        for prompt in self.prompts():
            column.addWidget(self._prompt_button(prompt))

    def _add_model_words(self, column: QVBoxLayout) -> None:
        column.addWidget(self._title(self.tr("Choose a model to begin")))
        words = self.tr(
            "Open a GGUF file, drop one on this window, or get the small starter model. "
            "You can read and write here in the meantime."
        )
        column.addWidget(self._text(words))
        column.addSpacing(self._look.px(12))
        button = QPushButton(self.tr("Choose a model…"), self._content)
        button.setProperty("kind", "primary")
        button.clicked.connect(self.model_requested)
        column.addWidget(button, 0, Qt.AlignmentFlag.AlignHCenter)

    def _title(self, words: str) -> QLabel:
        label = QLabel(words, self._content)
        label.setFont(self._look.body(pixels=22))
        label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        label.setStyleSheet(
            f"font-size: {self._look.px(22)}px; font-weight: 600; color: {self._look.theme.text};"
        )
        label.setWordWrap(True)
        return label

    def _text(self, words: str) -> QLabel:
        label = QLabel(words, self._content)
        label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        label.setWordWrap(True)
        label.setStyleSheet(f"font-size: {self._look.px(14)}px; color: {self._look.theme.muted};")
        return label

    def _prompt_button(self, prompt: str) -> QPushButton:
        theme = self._look.theme
        button = QPushButton(prompt, self._content)
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.setStyleSheet(
            f"QPushButton {{ text-align: left; padding: 0 14px; font-size: {self._look.px(14)}px;"
            f" min-height: {self._look.px(42)}px; border-radius: 10px; color: {theme.text};"
            f" background: transparent; border: 1px solid {theme.hairline}; }}"
            f"QPushButton:hover {{ background: {theme.hover}; }}"
            f"QPushButton:focus {{ border: 1px solid {theme.focus}; }}"
        )
        button.clicked.connect(lambda: self.prompt_chosen.emit(prompt))
        return button
