"""Loads, reloads and unloads models for the window, and says what came of it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from app.events import ErrorReport, ModelFailed, ModelInfo, ModelLoaded, ModelLoading, ModelUnloaded
from app.memory_estimate import MemoryEstimate, estimate_memory
from ui.background import Background
from ui.bridge import Bridge

if TYPE_CHECKING:
    from app.services import Services

SUFFIX = ".gguf"


class ModelSwitch(QObject):
    """The model's part of the window's business."""

    model_changed = Signal(object)
    too_large = Signal(Path, object)
    """A file that was opened or dropped, and its MemoryEstimate, which does not fit."""
    loading = Signal(ModelLoading, str)
    failed = Signal(ErrorReport)
    refused = Signal(Path, object)
    """A model whose memory precision loses too much, and the CodecAccuracy measured."""

    def __init__(self, services: Services, bridge: Bridge, window: QWidget) -> None:
        super().__init__(window)
        self._services = services
        self._window = window
        self.info: ModelInfo | None = services.worker.model
        self.is_loading = False
        self._measure = Background("estimate", self)
        self._measure.finished.connect(self._measured)
        self._considered = Path()
        self._measure.failed.connect(self._load_considered)
        bridge.model_loading.connect(self._show_loading)
        bridge.model_loaded.connect(self._loaded)
        bridge.model_unloaded.connect(self._unloaded)
        bridge.model_failed.connect(self._failed)

    def load(self, path: Path) -> None:
        """Load a model in place of the present one."""
        self._services.worker.load_model(path)

    def consider(self, path: Path) -> None:
        """Load a model that fits into memory; of one that does not, tell ``too_large``."""
        self._considered = path
        settings = self._services.settings.value
        self._measure.start(
            partial(
                estimate_memory,
                path,
                context_length=settings.context_length,
                codec=settings.kv_codec,
            )
        )

    def load_last(self) -> None:
        """Load the model used last, where its file still is."""
        last = self._services.settings.value.last_model
        if last and Path(last).is_file():
            self.load(Path(last))

    @Slot()
    def reload(self) -> None:
        """Load the present model again, with the settings of now."""
        if self.info is not None:
            self.load(Path(self.info.path))

    @Slot()
    def cancel(self) -> None:
        """Give up the load under way."""
        self._services.worker.cancel_load()

    @Slot()
    def unload(self) -> None:
        """Give the model's memory back."""
        self._services.worker.unload_model()

    @Slot()
    def ask_for_file(self) -> None:
        """Let the user pick a file, and load it."""
        name, _ = QFileDialog.getOpenFileName(
            self._window,
            self.tr("Open a model file"),
            str(self._services.paths.models),
            self.tr("Models (*.gguf)"),
        )
        if name:
            self.consider(Path(name))

    @Slot(object)
    def _measured(self, memory: MemoryEstimate) -> None:
        if memory.fits:
            self.load(self._considered)
        else:
            self.too_large.emit(self._considered, memory)

    @Slot(str)
    def _load_considered(self, problem: str) -> None:
        # What is wrong with the file is told better by the attempt to load it.
        self.load(self._considered)

    @Slot(ModelLoading)
    def _show_loading(self, event: ModelLoading) -> None:
        self.is_loading = True
        self.loading.emit(event, Path(event.path).stem)

    @Slot(ModelLoaded)
    def _loaded(self, event: ModelLoaded) -> None:
        self._set(event.info)

    @Slot(ModelUnloaded)
    def _unloaded(self, event: ModelUnloaded) -> None:
        self._set(self._services.worker.model)

    @Slot(ModelFailed)
    def _failed(self, event: ModelFailed) -> None:
        self._set(None)
        if event.accuracy is not None:
            self.refused.emit(Path(event.path), event.accuracy)
        else:
            self.failed.emit(event.error)

    def _set(self, info: ModelInfo | None) -> None:
        self.is_loading = False
        self.info = info
        self.model_changed.emit(info)


def model_files(names: list[str]) -> list[Path]:
    """Return those of the names that are model files."""
    return [Path(name) for name in names if Path(name).suffix.lower() == SUFFIX]
