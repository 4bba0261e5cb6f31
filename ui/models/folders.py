"""The folders that models are looked for in."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal, Slot
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from ui.elided import ElidedLabel
from ui.icons import icon
from ui.theme import Theme, beside_icon

if TYPE_CHECKING:
    from app.services import Services


class FoldersDialog(QDialog):
    """The own folder first, which stays; others can be added and taken away."""

    changed = Signal()

    def __init__(self, services: Services, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._services = services
        self._theme = theme
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Model folders"))
        self.setMinimumWidth(520)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 24, 24, 20)
        layout.setSpacing(12)
        title = QLabel(self.tr("Model folders"))
        title.setProperty("role", "title")
        hint = QLabel(
            self.tr("Models are looked for in these folders and all folders inside them."),
            wordWrap=True,
        )
        hint.setProperty("role", "muted")
        self._rows = QVBoxLayout()
        self._rows.setSpacing(4)
        layout.addWidget(title)
        layout.addWidget(hint)
        layout.addLayout(self._rows)
        layout.addSpacing(8)
        layout.addLayout(self._build_buttons())
        self._show_rows()

    def add(self, folder: str) -> None:
        """Look into one more folder."""
        known = self._services.settings.value.model_folders
        if folder not in known and Path(folder) != self._services.paths.models:
            self._store((*known, folder))

    def remove(self, folder: str) -> None:
        """Look into a folder no more; nothing in it is touched."""
        known = self._services.settings.value.model_folders
        self._store(tuple(name for name in known if name != folder))

    def _build_buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        add = QPushButton(icon("plus", self._theme.text), beside_icon(self.tr("Add a folder…")))
        add.setAutoDefault(False)
        add.clicked.connect(self._ask)
        close = QPushButton(self.tr("Close"), default=True)
        close.clicked.connect(self.accept)
        row.addWidget(add)
        row.addStretch()
        row.addWidget(close)
        return row

    def _store(self, folders: tuple[str, ...]) -> None:
        self._services.settings.update(model_folders=folders)
        self._show_rows()
        self.changed.emit()

    def _show_rows(self) -> None:
        while item := self._rows.takeAt(0):
            if widget := item.widget():
                widget.hide()
                widget.deleteLater()
        self._rows.addWidget(self._row(str(self._services.paths.models), can_go=False))
        for folder in self._services.settings.value.model_folders:
            self._rows.addWidget(self._row(folder, can_go=True))

    def _row(self, folder: str, *, can_go: bool) -> QWidget:
        widget = QWidget()
        row = QHBoxLayout(widget)
        row.setContentsMargins(0, 0, 0, 0)
        sign = QLabel()
        sign.setPixmap(icon("folder", self._theme.muted).pixmap(18, 18))
        name = ElidedLabel(folder, side=Qt.TextElideMode.ElideMiddle)
        row.addWidget(sign)
        row.addWidget(name, 1)
        away = QToolButton()
        away.setIcon(icon("x", self._theme.muted))
        away.setIconSize(QSize(16, 16))
        away.setFixedSize(QSize(32, 32))
        away.setAccessibleName(self.tr("Remove {0}").format(folder))
        away.setToolTip(self.tr("Remove from the list"))
        away.clicked.connect(partial(self.remove, folder))
        keeps_room = away.sizePolicy()
        keeps_room.setRetainSizeWhenHidden(True)
        away.setSizePolicy(keeps_room)
        row.addWidget(away)
        away.setVisible(can_go)
        return widget

    @Slot()
    def _ask(self) -> None:
        folder = QFileDialog.getExistingDirectory(self, self.tr("Add a folder"))
        if folder:
            self.add(folder)
