"""Conversations in from files and out to files, beside the window."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtWidgets import QFileDialog, QWidget

from ui.background import Background

if TYPE_CHECKING:
    from app.conversation import Conversation, Message
    from app.services import Services
    from app.store.chat_store import ChatStore

_MAX_NAME = 60
_FORBIDDEN = '<>:"/\\|?*'


class Exchange(QObject):
    """Asks for files, and says in one line what came of it."""

    imported = Signal()
    told = Signal(str)

    def __init__(self, services: Services, window: QWidget) -> None:
        super().__init__(window)
        self._chats = services.chats
        self._window = window
        self._imports = Background("import", self)
        self._imports.finished.connect(self._imported)
        self._imports.failed.connect(self.told)
        self._exports = Background("export", self)
        self._exports.finished.connect(self._exported)
        self._exports.failed.connect(self.told)

    @Slot()
    def ask_for_import(self) -> None:
        """Let the user pick files, and take their conversations in."""
        names, _ = QFileDialog.getOpenFileNames(
            self._window, self.tr("Import conversations"), "", self.tr("Conversations (*.json)")
        )
        if names:
            self.import_files([Path(name) for name in names])

    def import_files(self, paths: list[Path]) -> None:
        """Take in the conversations of ChatGPT, SimpleChat or Reprise files."""
        self._imports.start(partial(_read_in, self._chats, paths))

    def ask_for_markdown(self, conversation: Conversation) -> None:
        """Let the user pick a place, and write what is on screen there, for people to read."""
        path = self._ask_for_place(file_name(conversation.title), ".md", self.tr("Markdown (*.md)"))
        if path is not None:
            self.export_markdown(conversation, path)

    def ask_for_json(self, conversation: Conversation) -> None:
        """Let the user pick a place, and write one conversation with every branch there."""
        path = self._ask_for_place(file_name(conversation.title), ".json", self.tr("JSON (*.json)"))
        if path is not None:
            self.export_json([conversation], path)

    @Slot()
    def ask_for_all(self) -> None:
        """Let the user pick a place, and write all conversations there."""
        path = self._ask_for_place("reprise", ".json", self.tr("JSON (*.json)"))
        if path is not None:
            self.export_json(None, path)

    def export_markdown(self, conversation: Conversation, path: Path) -> None:
        """Write the branch on screen, other versions folded below each message."""
        self._exports.start(partial(_write_markdown, self._chats, conversation, path))

    def export_json(self, conversations: list[Conversation] | None, path: Path) -> None:
        """Write conversations with every branch; None writes all of them."""
        self._exports.start(partial(_write_json, self._chats, conversations, path))

    @Slot(object)
    def _imported(self, count: int) -> None:
        self.imported.emit()
        self.told.emit(self.tr("%n conversation(s) imported", "", count))

    @Slot(object)
    def _exported(self, path: Path) -> None:
        self.told.emit(self.tr("Saved as {0}").format(path.name))

    def _ask_for_place(self, name: str, suffix: str, kinds: str) -> Path | None:
        chosen, _ = QFileDialog.getSaveFileName(
            self._window, self.tr("Export"), str(Path.home() / f"{name}{suffix}"), kinds
        )
        path = Path(chosen)
        return None if not chosen else path if path.suffix else path.with_suffix(suffix)


def file_name(title: str) -> str:
    """Return a title as a file name that every system accepts."""
    kept = "".join(" " if c in _FORBIDDEN or ord(c) < 32 else c for c in title)
    return " ".join(kept.split())[:_MAX_NAME].strip(" .") or "conversation"


def conversation_files(names: list[str]) -> list[Path]:
    """Return those of the names that may hold conversations."""
    return [Path(name) for name in names if Path(name).suffix.lower() == ".json"]


def _read_in(chats: ChatStore, paths: list[Path]) -> int:
    from app.importers import read_file

    transcripts = [transcript for path in paths for transcript in read_file(path)]
    for transcript in transcripts:
        chats.add_transcript(transcript)
    return len(transcripts)


def _write_markdown(chats: ChatStore, conversation: Conversation, path: Path) -> Path:
    from app.export import to_markdown, write_text

    branch, everything = chats.path(conversation.id), chats.messages(conversation.id)
    write_text(path, to_markdown(conversation, branch, everything))
    return path


def _write_json(chats: ChatStore, conversations: list[Conversation] | None, path: Path) -> Path:
    from app.export import to_json, write_text

    rows = conversations or chats.conversations(include_archived=True)
    pairs: list[tuple[Conversation, list[Message]]] = [
        (row, chats.messages(row.id)) for row in rows
    ]
    write_text(path, to_json(pairs))
    return path
