"""Opens the instructions of one conversation or of all, and stores what was chosen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Slot
from PySide6.QtWidgets import QWidget

from engine.config import SamplingParams
from ui.appearance import Appearance
from ui.instructions.dialog import InstructionsDialog

if TYPE_CHECKING:
    from app.services import Services


class InstructionsDesk(QObject):
    """The instructions' part of the window's business."""

    def __init__(self, services: Services, appearance: Appearance, window: QWidget) -> None:
        super().__init__(window)
        self._services = services
        self._appearance = appearance
        self._window = window

    @Slot(str)
    def open_for(self, conversation_id: str) -> None:
        """Edit what holds for one conversation."""
        row = self._services.chat.conversation(conversation_id)
        settings = self._services.settings.value
        dialog = self._dialog(
            self.tr("This conversation"),
            self.tr(
                "Told to the model before everything else. Changing it has the conversation read "
                "again once."
            ),
        )
        dialog.show_values(
            row.system_prompt,
            row.sampling,
            general=settings.sampling,
            general_prompt=settings.system_prompt,
        )
        dialog.saved.connect(partial(self._save_for, conversation_id))
        dialog.open()

    @Slot()
    def open_general(self) -> None:
        """Edit what holds for all conversations that have nothing of their own."""
        settings = self._services.settings.value
        dialog = self._dialog(
            self.tr("All conversations"),
            self.tr("Told to the model in every conversation without instructions of its own."),
        )
        dialog.show_values(settings.system_prompt, settings.sampling)
        dialog.saved.connect(self._save_general)
        dialog.open()

    def _dialog(self, title: str, hint: str) -> InstructionsDialog:
        return InstructionsDialog(title, hint, self._appearance.theme, self._window)

    def _save_for(self, conversation_id: str, prompt: str, sampling: SamplingParams | None) -> None:
        chat = self._services.chat
        row = chat.conversation(conversation_id)
        if prompt != row.system_prompt:
            chat.set_system_prompt(conversation_id, prompt)
        if sampling != row.sampling:
            chat.set_sampling(conversation_id, sampling)

    @Slot(str, object)
    def _save_general(self, prompt: str, sampling: SamplingParams) -> None:
        self._services.settings.update(system_prompt=prompt, sampling=sampling)
