"""What can be done with one conversation, as the menu of its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QPersistentModelIndex, Qt, Signal
from PySide6.QtWidgets import QAbstractItemView, QInputDialog, QMenu

from app.conversation import Conversation
from ui.icons import icon
from ui.theme import Theme

if TYPE_CHECKING:
    from app.chat import ChatService


class RowMenu(QObject):
    """Builds the menu; what the window has to do comes as signals, the rest is done here."""

    _menu: QMenu

    delete_requested = Signal(str)
    markdown_requested = Signal(object)
    json_requested = Signal(object)
    settings_requested = Signal(str)

    def __init__(self, chat: ChatService, view: QAbstractItemView) -> None:
        super().__init__(view)
        self._chat = chat
        self._view = view
        self._ink = ""

    def build(self, index: QPersistentModelIndex, row: Conversation, theme: Theme) -> QMenu:
        """Return the menu of a row; it deletes itself when it is closed."""
        self._menu = QMenu(self._view)
        self._menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._ink = theme.muted
        self._add("pencil", self.tr("Rename"), lambda: self._view.edit(index))
        self._add_places(row)
        self._menu.addMenu(self._folder_menu(row))
        self._menu.addSeparator()
        self._add(
            "settings",
            self.tr("Instructions and sampling…"),
            lambda: self.settings_requested.emit(row.id),
        )
        self._menu.addMenu(self._export_menu(row))
        self._menu.addSeparator()
        self._add("trash-2", self.tr("Delete"), lambda: self.delete_requested.emit(row.id))
        return self._menu

    def _add_places(self, row: Conversation) -> None:
        self._add(
            "pin-off" if row.is_pinned else "pin",
            self.tr("Unpin") if row.is_pinned else self.tr("Pin"),
            lambda: self._chat.set_pinned(row.id, not row.is_pinned),
        )
        self._add(
            "archive-restore" if row.is_archived else "archive",
            self.tr("Take out of the archive") if row.is_archived else self.tr("Archive"),
            lambda: self._chat.set_archived(row.id, not row.is_archived),
        )

    def _folder_menu(self, row: Conversation) -> QMenu:
        menu = QMenu(self.tr("Folder"), self._menu)
        menu.setIcon(icon("folder", self._ink))
        for name in self._folders():
            self._add_folder(menu, name, row)
        menu.addSeparator()
        menu.addAction(icon("plus", self._ink), self.tr("New folder…"), lambda: self._new(row))
        if row.folder:
            out = self.tr("Take out of the folder")
            menu.addAction(out, lambda: self._chat.set_folder(row.id, ""))
        return menu

    def _add_folder(self, menu: QMenu, name: str, row: Conversation) -> None:
        # An & in a name is a letter, not the mark of a shortcut.
        action = menu.addAction(
            name.replace("&", "&&"), lambda: self._chat.set_folder(row.id, name)
        )
        action.setCheckable(True)
        action.setChecked(name == row.folder)

    def _folders(self) -> list[str]:
        rows = self._chat.conversations(include_archived=True)
        return sorted({row.folder for row in rows if row.folder}, key=str.casefold)

    def _new(self, row: Conversation) -> None:
        name, is_chosen = QInputDialog.getText(
            self._view, self.tr("New folder"), self.tr("Name of the folder")
        )
        if is_chosen and name.strip():
            self._chat.set_folder(row.id, name.strip())

    def _export_menu(self, row: Conversation) -> QMenu:
        menu = QMenu(self.tr("Export"), self._menu)
        menu.setIcon(icon("download", self._ink))
        menu.addAction(self.tr("Markdown…"), lambda: self.markdown_requested.emit(row))
        menu.addAction(self.tr("JSON, all branches…"), lambda: self.json_requested.emit(row))
        return menu

    def _add(self, name: str, text: str, act: Callable[[], object]) -> None:
        self._menu.addAction(icon(name, self._ink), text, act)
