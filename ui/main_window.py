"""The window: three columns, put together and wired. What things do is in their own files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal, Slot
from PySide6.QtGui import QAction, QCloseEvent, QDragEnterEvent, QDropEvent, QPaintEvent
from PySide6.QtWidgets import (
    QMainWindow,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.conversation import Conversation
from app.events import ConversationChanged, ModelInfo, ModelLoading, Notice
from ui.about import AboutDialog, ShortcutsDialog
from ui.actions import Actions
from ui.appearance import Appearance
from ui.background import Background
from ui.bridge import Bridge
from ui.cache.panel import CachePanel, hairline
from ui.chat.chat_pane import ChatPane
from ui.conversations.open_chat import OpenChat
from ui.conversations.pane import ConversationPane
from ui.error_words import notice_words
from ui.exchange import Exchange, conversation_files
from ui.frame import COLUMNS, DEFAULT_SIZE
from ui.instructions.desk import InstructionsDesk
from ui.models.dialog import ModelsDialog
from ui.models.switching import ModelSwitch, model_files
from ui.models.welcome import WelcomePage
from ui.notifier import Notifier
from ui.toast import Toast
from ui.top_bar import TopBar
from ui.troubles import Troubles
from ui.window_state import WindowState

if TYPE_CHECKING:
    from app.services import Services

Fetch = Callable[[Path, Callable[[float], None]], Path]
LEFT, RIGHT = 0, 2


class MainWindow(QMainWindow):
    """Fills the frame. Built from services that exist already; closing it does not close them."""

    painted = Signal()

    def __init__(
        self, services: Services, appearance: Appearance, state: WindowState, fetch_starter: Fetch
    ) -> None:
        super().__init__()
        self._services = services
        self._appearance = appearance
        self._state = state
        self.is_painted = False
        self._refresh = QTimer(self, interval=50, singleShot=True)
        self.bridge = Bridge(services.subscribe, self)
        self._build_columns()
        self.actions_ = Actions(self)
        self.models = ModelSwitch(services, self.bridge, self)
        self.troubles = Troubles(services, appearance, self.models, self)
        self.chat = OpenChat(services, self.bridge, self.pane)
        self.exchange = Exchange(services, self)
        self.instructions = InstructionsDesk(services, appearance, self)
        self.notifier = Notifier(services, self.bridge, self)
        self._fetch = fetch_starter
        self.starter = Background("starter", self)
        self._scan = Background("library", self)
        self.toast = Toast(self._centre)
        self.setAcceptDrops(True)
        self.setWindowTitle("Reprise")
        self.setMinimumSize(640, 480)
        self._connect_columns()
        self._connect_models()
        self._connect_exchange()
        self._connect_actions()
        self._restore()

    def open_files(self, names: list[str]) -> None:
        """Open the model files among these names, and come to the front."""
        for path in model_files(names)[:1]:
            self.models.consider(path)
        if conversations := conversation_files(names):
            self.exchange.import_files(conversations)
        window = self.window()
        window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
        window.raise_()
        window.activateWindow()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.is_painted:
            self.is_painted = True
            QTimer.singleShot(0, self.painted.emit)

    def closeEvent(self, event: QCloseEvent) -> None:
        self.chat.flush()
        self._state.save_window(self.window(), self._splitter)
        self._state.set_text("theme", self._appearance.theme.name)
        self._state.set_text("conversation", self.chat.current or "")
        self._state.sync()
        self.bridge.close()
        super().closeEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        names = [url.toLocalFile() for url in event.mimeData().urls()]
        if model_files(names) or conversation_files(names):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        self.open_files([url.toLocalFile() for url in event.mimeData().urls()])

    # Building

    def _build_columns(self) -> None:
        theme = self._appearance.theme
        self.conversations = ConversationPane(self._services, theme)
        self.top = TopBar(theme)
        self.pane = ChatPane()
        self.welcome = WelcomePage(theme)
        self.cache = CachePanel(self._services, theme)
        self._centre = self._build_centre()
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._splitter.setHandleWidth(1)
        for column in (self.conversations, self._centre, self.cache):
            self._splitter.addWidget(column)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.setSizes(COLUMNS)
        self.conversations.setMinimumWidth(200)
        self.cache.setMinimumWidth(280)
        self.setCentralWidget(self._splitter)

    def _build_centre(self) -> QWidget:
        centre = QWidget()
        centre.setMinimumWidth(360)
        self._pages = QStackedWidget()
        self._pages.addWidget(self.pane)
        self._pages.addWidget(self.welcome)
        column = QVBoxLayout(centre)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.top)
        column.addWidget(hairline())
        column.addWidget(self._pages, 1)
        return centre

    def _connect_columns(self) -> None:
        self.conversations.opened.connect(self._open_chat)
        self.conversations.new_requested.connect(self._new_chat)
        self.conversations.deleted.connect(self._offer_undo)
        self.chat.changed.connect(self._chat_changed)
        self.chat.failed.connect(self.toast.show_text)
        self.chat.new_draft_changed.connect(partial(self._state.set_text, "draft"))
        self.chat.message_deleted.connect(self._offer_message_undo)
        self.chat.settings_changed.connect(self.cache.form.refresh)
        self._refresh.timeout.connect(self._conversations_changed)
        self.bridge.conversation_changed.connect(self._schedule_refresh)
        self.bridge.cache_changed.connect(self.cache.show_cache)
        self.bridge.cache_changed.connect(self.conversations.model.refresh)
        self.bridge.shared_changed.connect(self.cache.form.show_shared)
        self.bridge.notice.connect(self._show_notice)
        self._appearance.theme_changed.connect(self._apply_theme)
        self._appearance.language_changed.connect(self._retranslate)

    def _connect_models(self) -> None:
        self.models.model_changed.connect(self._model_changed)
        self.models.loading.connect(self._model_loading)
        self.troubles.settings_changed.connect(self.cache.form.refresh)
        self.top.cancel_requested.connect(self.models.cancel)
        self.top.model.clicked.connect(self._show_models)
        self.pane.model_requested.connect(self._show_models)
        self.cache.reload_requested.connect(self.models.reload)
        self.welcome.open_requested.connect(self.models.ask_for_file)
        self.welcome.load_requested.connect(self.models.load)
        self.welcome.starter_requested.connect(self._fetch_starter)
        self.starter.progressed.connect(self.welcome.show_progress)
        self.starter.failed.connect(self.welcome.show_problem)
        self.starter.finished.connect(self.models.load)
        self._scan.finished.connect(self.welcome.set_entries)

    def _connect_exchange(self) -> None:
        row_menu = self.conversations.row_menu
        row_menu.markdown_requested.connect(self.exchange.ask_for_markdown)
        row_menu.json_requested.connect(self.exchange.ask_for_json)
        row_menu.settings_requested.connect(self.instructions.open_for)
        self.exchange.imported.connect(self._conversations_changed)
        self.exchange.told.connect(self.toast.show_text)

    def _connect_actions(self) -> None:
        zoom = self._appearance.zoom_by
        slots = {
            "new_chat": self._new_chat,
            "search": self._search,
            "rename": self.conversations.rename_current,
            "delete": self.conversations.delete_current,
            "previous": partial(self.conversations.step, -1),
            "next": partial(self.conversations.step, 1),
            "chat_instructions": self._show_instructions,
            "instructions": self.instructions.open_general,
            "import": self.exchange.ask_for_import,
            "export_markdown": partial(self._with_open_chat, self.exchange.ask_for_markdown),
            "export_json": partial(self._with_open_chat, self.exchange.ask_for_json),
            "export_all": self.exchange.ask_for_all,
            "open_model": self.models.ask_for_file,
            "models": self._show_models,
            "unload": self.models.unload,
            "show_conversations": partial(self._toggle_column, LEFT),
            "show_cache": partial(self._toggle_column, RIGHT),
            "settings": self._show_settings,
            "zoom_in": partial(zoom, 1),
            "zoom_out": partial(zoom, -1),
            "zoom_reset": partial(zoom, 0),
            "enter_sends": self._toggle_enter,
            "shortcuts": self._show_shortcuts,
            "about": self._show_about,
            "quit": lambda: self.window().close(),
        }
        for name, slot in slots.items():
            self.actions_[name].triggered.connect(lambda _=False, slot=slot: slot())
        self.actions_.themes.triggered.connect(self._choose_theme)
        self.actions_.languages.triggered.connect(self._choose_language)
        self.top.left.clicked.connect(self.actions_["show_conversations"].trigger)
        self.top.right.clicked.connect(self.actions_["show_cache"].trigger)
        self.top.set_menu(self.actions_.menu)

    def _restore(self) -> None:
        self.resize(*DEFAULT_SIZE)
        self._state.restore_geometry(self)
        self._state.restore_columns(self._splitter)
        for place, key in ((LEFT, "show_conversations"), (RIGHT, "show_cache")):
            self._column(place).setVisible(self._state.flag(key, True))
        self.chat.new_draft = self._state.text("draft")
        last = self._state.text("conversation")
        known = {row.id for row in self._services.chat.conversations()}
        if last in known:
            self.chat.open(last)
        else:
            self.chat.new()
        self._apply_theme()
        self._model_changed(self.models.info)
        self.pane.focus_composer()

    # What happens

    @Slot()
    def _new_chat(self) -> None:
        self.chat.new()
        self.pane.focus_composer()

    @Slot(str, str)
    def _open_chat(self, conversation_id: str, message_id: str) -> None:
        self.chat.open(conversation_id)
        if message_id:
            self.pane.show_message(message_id)
        self.pane.focus_composer()

    @Slot()
    def _search(self) -> None:
        self._show_column(LEFT)
        self.conversations.focus_search()

    @Slot(object)
    def _chat_changed(self, conversation_id: str | None) -> None:
        self.conversations.set_current(conversation_id)
        self._show_title()
        self._choose_page()
        for name in ("rename", "delete", "export_markdown", "export_json"):
            self.actions_[name].setEnabled(conversation_id is not None)

    @Slot(ConversationChanged)
    def _schedule_refresh(self, event: ConversationChanged) -> None:
        # One reading of the list for a burst of changes.
        if not self._refresh.isActive():
            self._refresh.start()

    @Slot()
    def _conversations_changed(self) -> None:
        self.conversations.refresh()
        row = self.chat.conversation()
        if row is not None and row.is_deleted:
            self.chat.new()
        self.chat.show_state()
        self._show_title()

    @Slot(str)
    def _offer_undo(self, conversation_id: str) -> None:
        undo = partial(self._services.chat.undo_delete_conversation, conversation_id)
        self.toast.show_text(self.tr("Conversation deleted"), self.tr("Undo"), undo)

    @Slot(str)
    def _offer_message_undo(self, message_id: str) -> None:
        undo = partial(self.chat.undo_delete, message_id)
        self.toast.show_text(self.tr("Message deleted"), self.tr("Undo"), undo)

    @Slot(Notice)
    def _show_notice(self, event: Notice) -> None:
        self.toast.show_text(notice_words(event))

    def _with_open_chat(self, act: Callable[[Conversation], None]) -> None:
        row = self.chat.conversation()
        if row is not None:
            act(row)

    @Slot()
    def _show_instructions(self) -> None:
        if self.chat.current is None:
            self.instructions.open_general()
        else:
            self.instructions.open_for(self.chat.current)

    # Models

    @Slot(object)
    def _model_changed(self, info: ModelInfo | None) -> None:
        self.top.show_model(info)
        self.pane.set_model(info)
        self.cache.set_model(info)
        self.actions_["unload"].setEnabled(info is not None)
        self._choose_page()

    @Slot(ModelLoading, str)
    def _model_loading(self, event: ModelLoading, name: str) -> None:
        self.top.show_loading(event, name)
        self._choose_page()

    def _choose_page(self) -> None:
        has_model = self.models.info is not None or self.models.is_loading
        is_waiting = not has_model and self.chat.current is None
        if is_waiting and self._pages.currentWidget() is not self.welcome:
            self.welcome.set_entries(self._services.library.entries())
            self._scan.start(self._services.library.scan)
        self._pages.setCurrentWidget(self.welcome if is_waiting else self.pane)

    @Slot()
    def _fetch_starter(self) -> None:
        self.welcome.show_progress(0.0)
        folder = self._services.paths.models
        self.starter.start(partial(self._fetch, folder, self.starter.tell))

    @Slot()
    def _show_models(self) -> None:
        dialog = ModelsDialog(self._services, self._appearance.theme, self._appearance.zoom, self)
        dialog.load_requested.connect(self.models.load)
        dialog.unload_requested.connect(self.models.unload)
        dialog.open_requested.connect(self.models.ask_for_file)
        self.models.model_changed.connect(dialog.refresh)
        dialog.open()

    # Looks

    def _toggle_column(self, place: int) -> None:
        column = self._column(place)
        column.setVisible(column.isHidden())
        key = "show_conversations" if place == LEFT else "show_cache"
        self._state.set_flag(key, not column.isHidden())

    def _show_column(self, place: int) -> None:
        if self._column(place).isHidden():
            self._toggle_column(place)

    def _column(self, place: int) -> QWidget:
        return self.conversations if place == LEFT else self.cache

    @Slot()
    def _show_settings(self) -> None:
        self._show_column(RIGHT)
        self.cache.focus_settings()

    def _toggle_enter(self) -> None:
        self._services.settings.update(enter_sends=self.actions_["enter_sends"].isChecked())
        self._check_choices()

    @Slot()
    def _show_shortcuts(self) -> None:
        ShortcutsDialog(self.actions_.shortcut_list(), self).open()

    @Slot()
    def _show_about(self) -> None:
        AboutDialog(self._appearance.theme, self).open()

    def _choose_theme(self, action: QAction) -> None:
        self._appearance.set_theme(action.data())

    def _choose_language(self, action: QAction) -> None:
        self._appearance.set_language(action.data())

    @Slot()
    def _apply_theme(self) -> None:
        theme, zoom = self._appearance.theme, self._appearance.zoom
        for part in (self.conversations, self.top, self.welcome, self.cache):
            part.apply_theme(theme, zoom)
        self.pane.apply_theme(theme)
        self.pane.set_zoom(zoom)
        self.actions_.apply_theme(theme)
        self._check_choices()

    @Slot()
    def _retranslate(self) -> None:
        for part in (
            self.conversations,
            self.top,
            self.welcome,
            self.cache,
            self.pane,
            self.actions_,
        ):
            part.retranslate()
        self._check_choices()
        self._show_title()

    def _check_choices(self) -> None:
        settings = self._services.settings.value
        self.actions_.check(settings.theme, settings.language)
        self.actions_["enter_sends"].setChecked(settings.enter_sends)
        self.pane.set_sends_on_enter(is_on=settings.enter_sends)

    def _show_title(self) -> None:
        row = self.chat.conversation()
        title = row.title if row else ""
        self.setWindowTitle(f"{title} · Reprise" if title else "Reprise")
