"""What the model is told before every conversation, or before one, and how it draws its words."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from engine.config import SamplingParams
from ui.instructions.sampling_form import SamplingForm
from ui.switch import Switch
from ui.theme import Theme

MAX_PROMPT = 100_000


class InstructionsDialog(QDialog):
    """Edits a system prompt and a SamplingParams; whose they are is the window's business."""

    saved = Signal(str, object)
    """The system prompt, and the sampling, None where it follows the general one."""

    def __init__(self, title: str, hint: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.resize(QSize(640, 0))
        self._general: SamplingParams | None = None
        self.prompt = QPlainTextEdit()
        self.prompt.setObjectName("field")
        self.prompt.setTabChangesFocus(True)
        self.prompt.setFixedHeight(120)
        self.prompt.setAccessibleName(self.tr("Instructions"))
        self.prompt.textChanged.connect(self._check_length)
        self.follows = Switch(theme)
        self.follows.setAccessibleName(self.tr("Sampling as in all conversations"))
        self.follows.toggled.connect(self._follow)
        self.form = SamplingForm()
        self._build(title, hint)

    def show_values(
        self,
        system_prompt: str,
        sampling: SamplingParams | None,
        *,
        general: SamplingParams | None = None,
        general_prompt: str = "",
    ) -> None:
        """Show these values. general: what a sampling of None follows; None where nothing is."""
        self._general = general
        self._follow_row.setVisible(general is not None)
        self.prompt.setPlainText(system_prompt)
        placeholder = general_prompt or self.tr("For example: Answer briefly, in plain words.")
        self.prompt.setPlaceholderText(placeholder)
        self.follows.setChecked(general is not None and sampling is None)
        self.form.set_value(sampling or general or SamplingParams())

    def _build(self, title: str, hint: str) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(24, 24, 24, 20)
        column.setSpacing(12)
        column.addWidget(_label(title, "title"))
        column.addSpacing(4)
        column.addWidget(_label(self.tr("Instructions"), "heading"))
        column.addWidget(self.prompt)
        column.addWidget(_label(hint, "faint"))
        column.addSpacing(8)
        column.addWidget(_label(self.tr("Sampling"), "heading"))
        self._follow_row = QWidget()
        row = QHBoxLayout(self._follow_row)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(QLabel(self.tr("As in all conversations")))
        row.addStretch()
        row.addWidget(self.follows)
        column.addWidget(self._follow_row)
        column.addWidget(self.form)
        column.addSpacing(8)
        column.addLayout(self._build_buttons())

    def _build_buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        cancel = QPushButton(self.tr("Cancel"), autoDefault=False)
        self.save_button = QPushButton(self.tr("Save"), default=True)
        self.save_button.setProperty("kind", "primary")
        cancel.clicked.connect(self.reject)
        self.save_button.clicked.connect(self.save)
        row.addStretch()
        row.addWidget(cancel)
        row.addWidget(self.save_button)
        return row

    @Slot()
    def save(self) -> None:
        """Tell what was chosen, and close."""
        sampling = None if self.follows.isChecked() else self.form.value()
        self.saved.emit(self.prompt.toPlainText().strip(), sampling)
        self.accept()

    @Slot(bool)
    def _follow(self, is_on: bool) -> None:
        if is_on and self._general is not None:
            self.form.set_value(self._general)
        self.form.setEnabled(not is_on)

    @Slot()
    def _check_length(self) -> None:
        self.save_button.setEnabled(len(self.prompt.toPlainText()) <= MAX_PROMPT)


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text, wordWrap=role == "faint")
    label.setProperty("role", role)
    return label
