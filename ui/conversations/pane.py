"""The left column: New chat, search, the list, and what can be done with one conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import (
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QSize,
    Qt,
    QTimer,
    Signal,
    Slot,
)
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.conversation import Conversation
from ui.conversations.delegate import ConversationDelegate
from ui.conversations.model import ConversationListModel, ItemRole, grouped
from ui.conversations.row_menu import RowMenu
from ui.icons import icon
from ui.theme import Theme, beside_icon

if TYPE_CHECKING:
    from app.services import Services

SEARCH_PAUSE_MS = 150
HOVER_PAUSE_MS = 150
AGE_INTERVAL_MS = 30_000


class SearchField(QLineEdit):
    """Esc empties it and, like Down, goes to the list."""

    left = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.clear()
        if event.key() in (Qt.Key.Key_Escape, Qt.Key.Key_Down):
            self.left.emit()
        else:
            super().keyPressEvent(event)


class ConversationPane(QWidget):
    """Shows and changes the conversations; which one is open is decided by the window."""

    opened = Signal(str, str)
    """A conversation, and the message in it that was searched for, "" without a search."""
    new_requested = Signal()
    deleted = Signal(str)

    def __init__(self, services: Services, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._services = services
        self._theme = theme
        self._current: str | None = None
        self._found: dict[str, str] = {}
        self._has_archived_shown = False
        self.setProperty("surface", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.model = ConversationListModel(services.chat.readiness)
        self.delegate = ConversationDelegate(theme, self)
        self._build()
        self._connect()
        self._start_timers()
        self.retranslate()
        self.apply_theme(theme, 1.0)
        self.refresh()

    def refresh(self) -> None:
        """Read the list, or the search's findings, again."""
        rows = self._services.chat.conversations(include_archived=True)
        self._archived_button.setVisible(any(row.is_archived for row in rows))
        text = self.search.text().strip()
        self._found = {}
        if text:
            self._show_found(rows, text)
        else:
            shown = [r for r in rows if self._has_archived_shown or not r.is_archived]
            self.model.set_rows(grouped(shown))
        if not self.view.hasFocus() or not self.view.currentIndex().isValid():
            self._show_current()
        self._show_emptiness(text)

    def set_current(self, conversation_id: str | None) -> None:
        """Mark the open conversation without opening it again."""
        self._current = conversation_id
        self._show_current()

    def focus_search(self) -> None:
        """Put the cursor into the search field."""
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def rename_current(self) -> None:
        """Start editing the title of the open conversation."""
        index = self.model.index_of(self._current)
        if index.isValid():
            self.view.edit(index)

    def delete_current(self) -> None:
        """Delete the open conversation; it can be brought back."""
        if self._current:
            self._delete(self._current)

    def step(self, offset: int) -> None:
        """Open the conversation above or below."""
        row = self.model.index_of(self._current).row() + offset
        if 0 <= row < self.model.rowCount():
            self._open(self.model.index(row))

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self._theme = theme
        self.delegate.apply_theme(theme, zoom)
        self._new_button.setIcon(icon("pencil-line", theme.text))
        self._search_icon.setIcon(icon("search", theme.muted))
        self.view.doItemsLayout()

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        self._new_button.setText(beside_icon(self.tr("New chat")))
        self.search.setPlaceholderText(self.tr("Search titles and text"))
        self.search.setAccessibleName(self.tr("Search conversations"))
        self.view.setAccessibleName(self.tr("Conversations"))
        self._archived_button.setText(
            self.tr("Hide archived") if self._has_archived_shown else self.tr("Show archived")
        )
        self._show_emptiness(self.search.text().strip())
        self.model.refresh()

    def _build(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 8)
        layout.setSpacing(8)
        layout.addLayout(self._build_top())
        self.view = self._build_view()
        self.row_menu = RowMenu(self._services.chat, self.view)
        self._empty = QLabel(alignment=Qt.AlignmentFlag.AlignTop, wordWrap=True)
        self._empty.setProperty("role", "muted")
        self._empty.setContentsMargins(20, 8, 20, 8)
        self._archived_button = QPushButton()
        self._archived_button.setProperty("kind", "quiet")
        layout.addWidget(self._empty)
        layout.addWidget(self.view, 1)
        bottom = QHBoxLayout()
        bottom.setContentsMargins(12, 0, 12, 0)
        bottom.addWidget(self._archived_button)
        bottom.addStretch()
        layout.addLayout(bottom)

    def _build_top(self) -> QVBoxLayout:
        top = QVBoxLayout()
        top.setContentsMargins(12, 0, 12, 0)
        top.setSpacing(8)
        self._new_button = QPushButton()
        self._new_button.setIconSize(QSize(16, 16))
        self.search = SearchField()
        self._search_icon = self.search.addAction(
            icon("search", self._theme.muted), QLineEdit.ActionPosition.LeadingPosition
        )
        top.addWidget(self._new_button)
        top.addWidget(self.search)
        return top

    def _build_view(self) -> QListView:
        view = QListView()
        view.setModel(self.model)
        view.setItemDelegate(self.delegate)
        view.setMouseTracking(True)
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        view.setDragDropMode(QAbstractItemView.DragDropMode.InternalMove)
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        return view

    def _connect(self) -> None:
        self._new_button.clicked.connect(self.new_requested)
        self._archived_button.clicked.connect(self._toggle_archived)
        self.view.clicked.connect(self._open)
        self.view.activated.connect(self._open)
        self.view.entered.connect(self._hover)
        self.view.customContextMenuRequested.connect(self._show_menu)
        self.view.selectionModel().currentChanged.connect(self._keyboard_moved)
        self.model.rename_requested.connect(self._services.chat.rename)
        self.model.moved.connect(self._store_move)
        delete = QShortcut(QKeySequence("Shift+Delete"), self.view, self._delete_selected)
        delete.setContext(Qt.ShortcutContext.WidgetShortcut)
        self.search.left.connect(self._leave_search)
        self.row_menu.delete_requested.connect(self._delete)

    def _start_timers(self) -> None:
        self._search_timer = QTimer(self, interval=SEARCH_PAUSE_MS, singleShot=True)
        self._search_timer.timeout.connect(self.refresh)
        self.search.textChanged.connect(self._search_timer.start)
        self._hover_timer = QTimer(self, interval=HOVER_PAUSE_MS, singleShot=True)
        self._hover_timer.timeout.connect(self._prefetch)
        self._hovered = ""
        self._age_timer = QTimer(self, interval=AGE_INTERVAL_MS)
        self._age_timer.timeout.connect(self.model.refresh)
        self._age_timer.start()

    def _show_found(self, rows: list[Conversation], text: str) -> None:
        snippets: dict[str, str] = {}
        for hit in self._services.chat.search(text):
            snippets.setdefault(hit.conversation_id, hit.snippet or " ")
            self._found.setdefault(hit.conversation_id, hit.message_id or "")
        by_id = {row.id: row for row in rows}
        found = [by_id[key] for key in snippets if key in by_id]
        self.model.set_rows(found, snippets)

    def _show_current(self) -> None:
        index = self.model.index_of(self._current)
        if index.isValid():
            self.view.setCurrentIndex(index)
        else:
            self.view.clearSelection()
            self.view.setCurrentIndex(QModelIndex())

    def _show_emptiness(self, search: str) -> None:
        self._empty.setVisible(self.model.rowCount() == 0)
        if search:
            self._empty.setText(self.tr("Nothing found for “{0}”.").format(search))
        else:
            self._empty.setText(
                self.tr("No conversations yet. Write a message to begin the first one.")
            )

    @Slot(QModelIndex)
    def _open(self, index: QModelIndex) -> None:
        conversation_id = index.data(ItemRole.ID)
        self.opened.emit(conversation_id, self._found.get(conversation_id, ""))

    @Slot(QModelIndex, QModelIndex)
    def _keyboard_moved(self, current: QModelIndex, before: QModelIndex) -> None:
        # Arrow keys prepare a conversation; Enter opens it.
        if current.isValid():
            self._hover(current)

    @Slot(QModelIndex)
    def _hover(self, index: QModelIndex) -> None:
        self._hovered = index.data(ItemRole.ID)
        self._hover_timer.start()

    def _prefetch(self) -> None:
        if self._hovered:
            self._services.chat.prefetch(self._hovered)

    @Slot()
    def _toggle_archived(self) -> None:
        self._has_archived_shown = not self._has_archived_shown
        self.retranslate()
        self.refresh()

    @Slot()
    def _leave_search(self) -> None:
        self.view.setFocus()

    @Slot(str)
    def _store_move(self, conversation_id: str) -> None:
        below = self.model.below(conversation_id)
        self._services.chat.move(conversation_id, before_id=below)

    @Slot(QPoint)
    def _show_menu(self, point: QPoint) -> None:
        index = self.view.indexAt(point)
        if index.isValid():
            self.build_menu(index).popup(self.view.viewport().mapToGlobal(point))

    def build_menu(self, index: QModelIndex) -> QMenu:
        """Return the context menu of a row."""
        row: Conversation = index.data(ItemRole.CONVERSATION)
        return self.row_menu.build(QPersistentModelIndex(index), row, self._theme)

    @Slot()
    def _delete_selected(self) -> None:
        index = self.view.currentIndex()
        if index.isValid():
            self._delete(index.data(ItemRole.ID))

    @Slot(str)
    def _delete(self, conversation_id: str) -> None:
        self._services.chat.delete_conversation(conversation_id)
        self.deleted.emit(conversation_id)
