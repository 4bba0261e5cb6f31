"""The conversations as Qt sees them. Knows no store: rows come in, wishes go out as signals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, Qt, Signal

from app.conversation import Conversation, Readiness
from ui.formats import ago_text, seconds_text

Index = QModelIndex | QPersistentModelIndex
NO_PARENT = QModelIndex()


class ItemRole(IntEnum):
    """What a row offers beyond its title."""

    ID = Qt.ItemDataRole.UserRole + 1
    CONVERSATION = Qt.ItemDataRole.UserRole + 2
    READINESS = Qt.ItemDataRole.UserRole + 3
    SNIPPET = Qt.ItemDataRole.UserRole + 4
    GROUP = Qt.ItemDataRole.UserRole + 5


class ConversationListModel(QAbstractListModel):
    """Rows in the order given; a group's name is on its first row only."""

    rename_requested = Signal(str, str)
    moved = Signal(str)

    def __init__(self, readiness: Callable[[str], Readiness | None]) -> None:
        super().__init__()
        self._rows: list[Conversation] = []
        self._snippets: Mapping[str, str] = {}
        self._readiness = readiness
        self._read = self._readers()

    def set_rows(
        self, rows: Sequence[Conversation], snippets: Mapping[str, str] | None = None
    ) -> None:
        """Show these rows; moves and inserts rather than a reset, so that an editor survives."""
        self._snippets = snippets or {}
        for place, row in enumerate(rows):
            self._put(place, row)
        if len(self._rows) > len(rows):
            self.beginRemoveRows(NO_PARENT, len(rows), len(self._rows) - 1)
            del self._rows[len(rows) :]
            self.endRemoveRows()
        self.refresh()

    def refresh(self) -> None:
        """Have ages, badges and texts drawn anew."""
        if self._rows:
            self.dataChanged.emit(self.index(0), self.index(len(self._rows) - 1))

    def rows(self) -> tuple[Conversation, ...]:
        """Return the rows as shown."""
        return tuple(self._rows)

    def index_of(self, conversation_id: str | None) -> QModelIndex:
        """Return the index of a conversation, invalid when it is not shown."""
        for place, row in enumerate(self._rows):
            if row.id == conversation_id:
                return self.index(place)
        return QModelIndex()

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        if role == ItemRole.GROUP:
            return self._heading(index.row())
        read = self._read.get(role)
        return read(self._rows[index.row()]) if read else None

    def setData(self, index: Index, value: object, role: int = Qt.ItemDataRole.EditRole) -> bool:
        if role != Qt.ItemDataRole.EditRole or not index.isValid():
            return False
        row, title = self._rows[index.row()], str(value).strip()
        if title and title != row.title:
            self.rename_requested.emit(row.id, title)
        return True

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.ItemIsDropEnabled
        return (
            Qt.ItemFlag.ItemIsEnabled
            | Qt.ItemFlag.ItemIsSelectable
            | Qt.ItemFlag.ItemIsEditable
            | Qt.ItemFlag.ItemIsDragEnabled
            | Qt.ItemFlag.ItemNeverHasChildren
        )

    def supportedDropActions(self) -> Qt.DropAction:
        return Qt.DropAction.MoveAction

    def moveRows(
        self, source: Index, row: int, count: int, target: Index, destination: int
    ) -> bool:
        """Move one row by drag; refused while a search or another group orders the list."""
        is_possible = count == 1 and not self._snippets and destination not in (row, row + 1)
        if not is_possible or not self._is_same_group(row, destination):
            return False
        self.beginMoveRows(NO_PARENT, row, row, NO_PARENT, destination)
        moving = self._rows.pop(row)
        self._rows.insert(destination - (destination > row), moving)
        self.endMoveRows()
        self.moved.emit(moving.id)
        return True

    def below(self, conversation_id: str) -> str | None:
        """Return the row below within the group, None at its end."""
        place = self.index_of(conversation_id).row()
        if place + 1 >= len(self._rows):
            return None
        row, below = self._rows[place], self._rows[place + 1]
        return below.id if _group_key(below) == _group_key(row) else None

    def _put(self, place: int, row: Conversation) -> None:
        if place < len(self._rows) and self._rows[place].id == row.id:
            self._rows[place] = row
            return
        found = self.index_of(row.id).row()
        if found > place:
            self.beginMoveRows(NO_PARENT, found, found, NO_PARENT, place)
            del self._rows[found]
            self._rows.insert(place, row)
            self.endMoveRows()
            return
        self.beginInsertRows(NO_PARENT, place, place)
        self._rows.insert(place, row)
        self.endInsertRows()

    def _readers(self) -> dict[int, Callable[[Conversation], object]]:
        return {
            Qt.ItemDataRole.DisplayRole: self._title,
            Qt.ItemDataRole.EditRole: lambda row: row.title,
            Qt.ItemDataRole.ToolTipRole: self._tool_tip,
            Qt.ItemDataRole.AccessibleTextRole: self._spoken,
            ItemRole.ID: lambda row: row.id,
            ItemRole.CONVERSATION: lambda row: row,
            ItemRole.READINESS: lambda row: self._readiness(row.id),
            ItemRole.SNIPPET: lambda row: self._snippets.get(row.id, ""),
        }

    def _title(self, row: Conversation) -> str:
        return row.title or self.tr("New chat")

    def _tool_tip(self, row: Conversation) -> str:
        readiness = self._readiness(row.id)
        if readiness is None:
            return self._title(row)
        kept = self.tr("%n token(s) kept", "", readiness.ready_tokens)
        unread = self.tr("%n would be read", "", readiness.unread_tokens)
        return f"{self._title(row)}\n{kept}, {unread}"

    def _spoken(self, row: Conversation) -> str:
        readiness = self._readiness(row.id)
        wait = self.tr("ready: {0}").format(seconds_text(readiness.seconds)) if readiness else ""
        news = self.tr("unread") if row.is_unread else ""
        return ", ".join(filter(None, (self._title(row), ago_text(row.updated_at), wait, news)))

    def _heading(self, place: int) -> str:
        row = self._rows[place]
        group = _group_key(row)
        if place and _group_key(self._rows[place - 1]) == group:
            return ""
        if row.is_pinned:
            return self.tr("Pinned")
        if row.is_archived:
            return self.tr("Archived")
        return row.folder or (self.tr("Chats") if place else "")

    def _is_same_group(self, row: int, destination: int) -> bool:
        others = [p for p in (destination - 1, destination) if 0 <= p < len(self._rows)]
        group = _group_key(self._rows[row])
        return any(_group_key(self._rows[place]) == group for place in others)


def _group_key(row: Conversation) -> tuple[bool, bool, str]:
    return row.is_pinned, row.is_archived, row.folder


def grouped(rows: Iterable[Conversation]) -> list[Conversation]:
    """Bring pinned rows, then loose ones, then each folder, then archived ones together."""
    return sorted(rows, key=lambda row: (row.is_archived, not row.is_pinned, row.folder))
