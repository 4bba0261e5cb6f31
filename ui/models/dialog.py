"""The models of the library: which there are, what they would take, which one is in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QModelIndex, Qt, Signal, Slot
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QHBoxLayout,
    QLabel,
    QListView,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.memory_estimate import MemoryEstimate, estimate_memory
from ui.background import Background
from ui.icons import icon
from ui.models.folders import FoldersDialog
from ui.models.library_model import EntryDelegate, EntryRole, LibraryModel
from ui.models.memory_words import memory_words
from ui.theme import Theme, beside_icon

if TYPE_CHECKING:
    from app.model_library import ModelEntry
    from app.services import Services


class ModelsDialog(QDialog):
    """Asks for a load or an unload; the window carries it out."""

    load_requested = Signal(Path)
    unload_requested = Signal()
    open_requested = Signal()

    def __init__(
        self,
        services: Services,
        theme: Theme,
        zoom: float,
        parent: QWidget | None = None,
        *,
        estimate: Callable[..., MemoryEstimate] = estimate_memory,
    ) -> None:
        super().__init__(parent)
        self._estimate_memory = estimate
        self._services = services
        self._theme = theme
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Models"))
        self.resize(620, 520)
        self.model = LibraryModel()
        self._scan = Background("library", self)
        self._scan.finished.connect(self._show_entries)
        self._measure = Background("estimate", self)
        self._measure.finished.connect(self._show_estimate)
        self._measure.failed.connect(self._show_problem)
        self._build(theme, zoom)
        self.refresh()
        self.view.setFocus()

    def refresh(self) -> None:
        """Show what is known of the library, and look into its folders again."""
        self._show_entries(self._services.library.entries())
        self._scan.start(self._services.library.scan)

    @Slot(object)
    def _show_entries(self, entries: Sequence[ModelEntry]) -> None:
        loaded = self._services.worker.model
        selected = self._selected()
        self.model.set_entries(entries, loaded=loaded.path if loaded else "")
        self._empty.setVisible(not entries)
        self._unload.setVisible(loaded is not None)
        place = entries.index(selected) if selected in entries else 0
        if entries:
            self.view.setCurrentIndex(self.model.index(place))
        self._show_selected()

    def _build(self, theme: Theme, zoom: float) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 24, 24, 20)
        layout.setSpacing(16)
        layout.addLayout(self._build_top(theme))
        self._empty = QLabel(
            self.tr("There is no model here yet. Open a .gguf file, or drop one on the window."),
            wordWrap=True,
        )
        self._empty.setProperty("role", "muted")
        self.view = self._build_view(theme, zoom)
        self._estimate = QLabel(wordWrap=True)
        layout.addWidget(self._empty)
        layout.addWidget(self.view, 1)
        layout.addWidget(self._estimate)
        layout.addLayout(self._build_bottom())

    def _build_top(self, theme: Theme) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        title = QLabel(self.tr("Models"))
        title.setProperty("role", "title")
        open_file = QPushButton(
            icon("folder-open", theme.text), beside_icon(self.tr("Open a file…"))
        )
        open_file.setAutoDefault(False)
        open_file.clicked.connect(self.open_requested)
        folders = QPushButton(icon("folder", theme.text), beside_icon(self.tr("Folders…")))
        folders.setAutoDefault(False)
        folders.clicked.connect(self._show_folders)
        row.addWidget(title)
        row.addStretch()
        row.addWidget(folders)
        row.addWidget(open_file)
        return row

    def _build_view(self, theme: Theme, zoom: float) -> QListView:
        view = QListView()
        view.setModel(self.model)
        view.setItemDelegate(EntryDelegate(theme, zoom, view))
        view.setMouseTracking(True)
        view.setAccessibleName(self.tr("Models"))
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.selectionModel().currentChanged.connect(self._show_selected)
        view.activated.connect(self._load_selected)
        return view

    def _build_bottom(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self._unload = QPushButton(self.tr("Unload"), autoDefault=False)
        close = QPushButton(self.tr("Close"), autoDefault=False)
        self._load = QPushButton(self.tr("Load"), default=True)
        self._load.setProperty("kind", "primary")
        self._unload.clicked.connect(self.unload_requested)
        self._load.clicked.connect(self._load_selected)
        close.clicked.connect(self.accept)
        row.addWidget(self._unload)
        row.addStretch()
        row.addWidget(close)
        row.addWidget(self._load)
        return row

    def _selected(self) -> ModelEntry | None:
        entry: ModelEntry | None = self.view.currentIndex().data(EntryRole.ENTRY)
        return entry

    @Slot()
    def _show_selected(self) -> None:
        entry = self._selected()
        is_usable = entry is not None and not entry.error
        self._load.setEnabled(is_usable)
        self._estimate.setText(" ")
        self._load.setText(self.tr("Load"))
        if entry is None or not is_usable:
            return
        settings = self._services.settings.value
        ask = partial(
            self._estimate_memory,
            Path(entry.path),
            context_length=settings.context_length,
            codec=settings.kv_codec,
        )
        self._measure.start(ask)

    @Slot(object)
    def _show_estimate(self, memory: MemoryEstimate) -> None:
        self._estimate.setText(memory_words(memory))
        self._color_estimate("muted" if memory.fits else "danger")
        self._load.setText(self.tr("Load") if memory.fits else self.tr("Load anyway"))

    @Slot(str)
    def _show_problem(self, text: str) -> None:
        self._estimate.setText(text)
        self._color_estimate("danger")

    def _color_estimate(self, role: str) -> None:
        self._estimate.setProperty("role", role)
        self._estimate.style().polish(self._estimate)

    @Slot()
    def _show_folders(self) -> None:
        dialog = FoldersDialog(self._services, self._theme, self)
        dialog.changed.connect(self.refresh)
        dialog.open()

    @Slot()
    def _load_selected(self, index: QModelIndex | None = None) -> None:
        entry = self._selected()
        if entry is not None and not entry.error:
            self.load_requested.emit(Path(entry.path))
            self.accept()
