"""Two small dialogs of the menu: what this is, and its keys."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QSize, Qt
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from ui.icons import pixmap
from ui.theme import Theme


class AboutDialog(QDialog):
    """Says what Reprise is, and that nothing is sent anywhere."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("About Reprise"))
        self.setFixedWidth(420)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(32, 32, 32, 24)
        layout.setSpacing(8)
        sign = QLabel()
        sign.setPixmap(pixmap("reprise", theme.accent, 40))
        sign.setFixedSize(QSize(40, 40))
        layout.addWidget(sign)
        layout.addWidget(_label("Reprise", "title"))
        version = QCoreApplication.applicationVersion()
        layout.addWidget(_label(self.tr("Version {0}").format(version), "faint"))
        layout.addSpacing(8)
        for text in self._paragraphs():
            layout.addWidget(_label(text, "body"))
        layout.addSpacing(16)
        layout.addWidget(_close_button(self), 0, Qt.AlignmentFlag.AlignRight)

    def _paragraphs(self) -> tuple[str, ...]:
        return (
            self.tr(
                "Language models that run on your own machine, and never read the same text twice."
            ),
            self.tr(
                "Nothing is sent anywhere, unless you set up a shared store. Your conversations, "
                "your models and what the models remember stay in files on this computer."
            ),
            self.tr("Free software under the Apache License 2.0. Icons by Lucide, ISC License."),
        )


class ShortcutsDialog(QDialog):
    """What can be reached by keys."""

    def __init__(self, shortcuts: list[tuple[str, str]], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Keyboard shortcuts"))
        self.setMinimumWidth(440)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(32, 24, 32, 24)
        layout.setSpacing(16)
        layout.addWidget(_label(self.tr("Keyboard shortcuts"), "title"))
        grid = QGridLayout()
        grid.setVerticalSpacing(8)
        grid.setColumnStretch(0, 1)
        for place, (text, keys) in enumerate([*shortcuts, *self._of_the_chat()]):
            grid.addWidget(_label(text, "body"), place, 0)
            grid.addWidget(_label(keys, "keys"), place, 1, Qt.AlignmentFlag.AlignRight)
        layout.addLayout(grid)
        layout.addWidget(_close_button(self), 0, Qt.AlignmentFlag.AlignRight)

    def _of_the_chat(self) -> tuple[tuple[str, str], ...]:
        return (
            (self.tr("Send the message"), "Enter"),
            (self.tr("New line"), "Shift+Enter"),
            (self.tr("Stop the reply"), "Esc"),
            (self.tr("Edit the last message"), "↑"),
        )


def _label(text: str, role: str) -> QLabel:
    label = QLabel(text, wordWrap=role in ("body", "muted"))
    label.setProperty("role", role)
    return label


def _close_button(dialog: QDialog) -> QPushButton:
    button = QPushButton(QCoreApplication.translate("AboutDialog", "Close"), default=True)
    button.clicked.connect(dialog.accept)
    return button
