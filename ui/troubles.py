"""What the window says, and asks, when something does not go as wished."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QWidget

from app.events import CodecAccuracy, ErrorReport
from app.memory_estimate import MemoryEstimate
from ui.appearance import Appearance
from ui.error_dialog import ErrorDialog
from ui.models.codec_refused import CodecRefusedDialog
from ui.models.switching import ModelSwitch
from ui.models.too_large import TooLargeDialog

if TYPE_CHECKING:
    from app.services import Services


class Troubles(QObject):
    """Opens the dialogs and carries out their answers."""

    settings_changed = Signal()

    def __init__(
        self, services: Services, appearance: Appearance, models: ModelSwitch, window: QWidget
    ) -> None:
        super().__init__(window)
        self._services = services
        self._appearance = appearance
        self._models = models
        self._window = window
        models.failed.connect(self.show_error)
        models.refused.connect(self.ask_about_codec)
        models.too_large.connect(self.ask_about_memory)

    @Slot(ErrorReport)
    def show_error(self, report: ErrorReport) -> None:
        """Say in plain words what went wrong."""
        ErrorDialog(report, self._appearance.theme, self._window).open()

    @Slot(Path, object)
    def ask_about_memory(self, path: Path, memory: MemoryEstimate) -> None:
        """Ask before a model is loaded that would not fit."""
        dialog = TooLargeDialog(path, memory, self._window)
        dialog.load_requested.connect(self._models.load)
        dialog.open()

    @Slot(Path, object)
    def ask_about_codec(self, path: Path, accuracy: CodecAccuracy) -> None:
        """Ask what to do about a memory precision that loses too much."""
        dialog = CodecRefusedDialog(path, accuracy, self._appearance.theme, self._window)
        dialog.force_requested.connect(self._force)
        dialog.plain_requested.connect(self._use_plain)
        dialog.open()

    @Slot(Path)
    def _force(self, path: Path) -> None:
        self._services.settings.update(force_kv_codec=True)
        self._load(path)

    @Slot(Path)
    def _use_plain(self, path: Path) -> None:
        self._services.settings.update(kv_codec="f16")
        self._load(path)

    def _load(self, path: Path) -> None:
        self.settings_changed.emit()
        self._models.load(path)
