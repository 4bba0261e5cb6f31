"""The chat: messages above, composer below. Speaks in signals, knows no service."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QStackedLayout, QVBoxLayout, QWidget

from app.conversation import Conversation, Message, Readiness
from app.events import (
    ModelInfo,
    ReplyDelta,
    ReplyFinished,
    ReplyProgress,
    ReplyQueued,
    ReplyTrimmed,
)
from ui.chat.cache_strip import CacheStrip
from ui.chat.composer import Composer
from ui.chat.empty_state import EmptyState
from ui.chat.look import Look, default_look
from ui.chat.message_actions import Action, message_menu
from ui.chat.message_model import MessageModel
from ui.chat.message_view import MessageView
from ui.chat.model_note import ModelNote
from ui.chat.price import price_of_reading, price_words
from ui.theme import Theme


class ChatPane(QWidget):
    """One conversation on screen. Events of other conversations are ignored."""

    send_requested = Signal(str)
    stop_requested = Signal()
    regenerate_requested = Signal(str)
    edit_requested = Signal(str, str)
    continue_requested = Signal(str)
    version_requested = Signal(str, int)
    """The message on screen and the wanted 1-based version of it."""
    delete_requested = Signal(str)
    question_answered = Signal(str, str, bool)
    """The asking reply, a policy or another answer, and whether it is to be the rule."""
    pin_requested = Signal(str, bool)
    draft_changed = Signal(str)
    model_requested = Signal()

    def __init__(self, parent: QWidget | None = None, *, look: Look | None = None) -> None:
        super().__init__(parent)
        self._look = look or default_look()
        self._conversation_id = ""
        self._model_name = ""
        self._bytes_per_token: int | None = None
        self._readiness: Readiness | None = None
        self._messages = MessageModel(self)
        self._view = MessageView(self._messages, self._look, self)
        self._strip = CacheStrip(self._look, self._messages, self._view)
        self._strip.hide()
        self._empty = EmptyState(self._look, self)
        self._composer = Composer(self._look, self)
        self._note = ModelNote(self._look, self)
        self._stack = QStackedLayout()
        self._stack.addWidget(self._empty)
        self._stack.addWidget(self._view)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self._note)
        layout.addLayout(self._stack, 1)
        layout.addWidget(self._composer)
        self._connect()

    @property
    def view(self) -> MessageView:
        """The messages."""
        return self._view

    @property
    def composer(self) -> Composer:
        """The field below them."""
        return self._composer

    @property
    def empty(self) -> EmptyState:
        """What is shown without messages."""
        return self._empty

    @property
    def note(self) -> ModelNote:
        """What is to be known of the model."""
        return self._note

    @property
    def look(self) -> Look:
        """The present theme and zoom."""
        return self._look

    @property
    def messages(self) -> MessageModel:
        """What is shown."""
        return self._messages

    @property
    def strip(self) -> CacheStrip:
        """The strip that tells what is ready."""
        return self._strip

    @property
    def is_busy(self) -> bool:
        """Tell whether a reply of this conversation is being written or waits."""
        return self._messages.live_row is not None

    def set_conversation(
        self, conversation: Conversation | None, messages: Sequence[Message], draft: str
    ) -> None:
        """Show a conversation, or none, with its branch from root to leaf."""
        self._composer.flush_draft()
        self._conversation_id = conversation.id if conversation else ""
        self._messages.set_path(())
        self.set_readiness(None)
        self._composer.set_draft(draft)
        self.set_path(messages)
        self._view.jump_to_latest()

    @Slot(list)
    def set_path(self, messages: Sequence[Message]) -> None:
        """Show another branch or a longer one; what both share stays as it is."""
        last = self._messages.rows[-1].message.id if self._messages.rows else ""
        self._messages.set_path(messages)
        self._stack.setCurrentWidget(self._view if self._messages.rows else self._empty)
        is_longer = self._messages.place_of(last) is not None and self._messages.rows[-1].is_live
        if is_longer and self._messages.rows[-1].message.id != last:
            self._view.jump_to_latest()
        self._on_messages_changed()

    @Slot(object)
    def apply_queued(self, event: ReplyQueued) -> None:
        """Take a reply's place in the queue."""
        self._messages.apply_queued(event)

    @Slot(object)
    def apply_progress(self, event: ReplyProgress) -> None:
        """Take how much of a prompt has been read."""
        self._messages.apply_progress(event)

    @Slot(object)
    def apply_trimmed(self, event: ReplyTrimmed) -> None:
        """Take what a reply is written without."""
        self._messages.apply_trimmed(event)

    @Slot(object)
    def apply_delta(self, event: ReplyDelta) -> None:
        """Take text of a reply."""
        self._messages.apply_delta(event)

    @Slot(object)
    def apply_finished(self, event: ReplyFinished) -> None:
        """Take a reply in its last form."""
        self._messages.apply_finished(event)
        self._on_messages_changed()

    @Slot(object)
    def set_model(self, model: ModelInfo | None) -> None:
        """Say which model is loaded."""
        self._model_name = model.name if model else ""
        sizes = dict(model.kv_bytes_per_token) if model else {}
        self._bytes_per_token = sizes.get(model.kv_codec) if model else None
        self._composer.set_model_name(self._model_name)
        self._empty.set_model_name(self._model_name)
        self._note.set_model(model)

    def set_context_use(self, tokens: int | None, limit: int) -> None:
        """Show how full the context is; None when it is not known."""
        self._composer.meter.set_use(tokens, limit)

    def set_readiness(self, readiness: Readiness | None) -> None:
        """Show what of the conversation is ready; None hides the strip."""
        self._readiness = readiness
        self._strip.set_readiness(readiness)

    def prices(self, message_id: str) -> dict[Action, str]:
        """Return what can be done with a message that costs reading, and how much of it."""
        path = self._messages.in_context()
        place = next((at for at, one in enumerate(path) if one.id == message_id), None)
        if place is None or not self._model_name:
            return {}
        last = {Action.EDIT: place + 1, Action.REGENERATE: place, Action.DELETE: place}
        return {
            action: price_words(
                price_of_reading(
                    path,
                    place,
                    end,
                    self._readiness,
                    bytes_per_token=None if action is Action.DELETE else self._bytes_per_token,
                )
            )
            for action, end in last.items()
        }

    def set_sends_on_enter(self, *, is_on: bool) -> None:
        """Choose whether Enter or Ctrl+Enter sends."""
        self._composer.set_sends_on_enter(is_on=is_on)

    def show_message(self, message_id: str) -> None:
        """Bring a message into view, e.g. one that was searched for."""
        self._view.show_message(message_id)

    def focus_composer(self) -> None:
        """Put the cursor where one writes."""
        self._composer.editor.setFocus(Qt.FocusReason.OtherFocusReason)

    def copy_last_reply(self) -> None:
        """Copy the last reply as Markdown."""
        rows = [row for row in self._messages.rows if not row.is_user]
        if rows:
            self._act(Action.COPY.value, rows[-1].message.id)

    @Slot(object)
    def apply_theme(self, theme: Theme) -> None:
        """Take over colours."""
        self._set_look(Look(theme, self._look.zoom))

    @Slot(float)
    def set_zoom(self, zoom: float) -> None:
        """Scale text, code included."""
        self._set_look(Look(self._look.theme, zoom))

    @Slot()
    def retranslate(self) -> None:
        """Take over the language."""
        self._empty.retranslate()
        self._composer.retranslate()
        self._note.retranslate()
        self._view.set_look(self._look)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Stop on Esc, wherever the cursor is."""
        if event.key() == Qt.Key.Key_Escape and self.is_busy:
            self.stop_requested.emit()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Tell the composer how much room there is."""
        super().resizeEvent(event)
        self._composer.set_room(event.size().height())

    def _connect(self) -> None:
        self._composer.send_requested.connect(self.send_requested)
        self._composer.stop_requested.connect(self.stop_requested)
        self._composer.draft_changed.connect(self.draft_changed)
        self._composer.edit_last_requested.connect(self._edit_last)
        self._empty.prompt_chosen.connect(self._take_prompt)
        self._empty.model_requested.connect(self.model_requested)
        self._view.set_prices(self.prices)
        self._view.action_triggered.connect(lambda key, action: self._act(action, key))
        self._view.menu_requested.connect(self._open_menu)
        self._view.edit_saved.connect(self._save_edit)
        self._view.edit_cancelled.connect(self._cancel_edit)
        self._view.version_requested.connect(self.version_requested)
        self._view.continue_requested.connect(self.continue_requested)
        self._view.retry_requested.connect(self.regenerate_requested)
        self._view.question_answered.connect(self.question_answered)

    def _set_look(self, look: Look) -> None:
        if look == self._look:
            return
        self._look = look
        self._view.set_look(look)
        self._strip.set_look(look)
        self._empty.set_look(look)
        self._composer.set_look(look)
        self._note.set_look(look)

    def _on_messages_changed(self) -> None:
        self._composer.set_busy(is_busy=self.is_busy)

    def _act(self, action: str, message_id: str) -> None:
        match Action(action):
            case Action.COPY | Action.COPY_PLAIN | Action.COPY_SELECTION:
                self._copy(message_id, Action(action))
            case Action.EDIT:
                self.begin_edit(message_id)
            case Action.REGENERATE:
                self.regenerate_requested.emit(message_id)
            case Action.CONTINUE:
                self.continue_requested.emit(message_id)
            case Action.PIN | Action.UNPIN:
                self.pin_requested.emit(message_id, action == Action.PIN)
            case Action.DELETE:
                self.delete_requested.emit(message_id)

    def _copy(self, message_id: str, action: Action) -> None:
        row, widget = self._messages.row_of(message_id), self._view.widget_of(message_id)
        if row is None:
            return
        text = row.message.content
        if widget is not None and action is Action.COPY_PLAIN:
            text = widget.body.plain_text()
        elif widget is not None and action is Action.COPY_SELECTION:
            text = widget.body.selected_text()
        QGuiApplication.clipboard().setText(text)

    def begin_edit(self, message_id: str) -> None:
        """Open a message for editing where it stands."""
        row = self._messages.row_of(message_id)
        if row is None or row.is_live:
            return
        row.edit_text = row.message.content
        self._messages.touch(message_id)
        self._view.show_edit(message_id)

    def _edit_last(self) -> None:
        if row := self._messages.last_own():
            self.begin_edit(row.message.id)

    def _save_edit(self, message_id: str, text: str) -> None:
        row = self._messages.row_of(message_id)
        self._cancel_edit(message_id)
        if row is not None and text.strip() != row.message.content.strip():
            self.edit_requested.emit(message_id, text)

    def _cancel_edit(self, message_id: str) -> None:
        if row := self._messages.row_of(message_id):
            row.edit_text = None
            self._messages.touch(message_id)
            self.focus_composer()

    def _take_prompt(self, prompt: str) -> None:
        self._composer.editor.set_text(prompt)
        self.focus_composer()

    def _open_menu(self, message_id: str, place: QPoint) -> None:
        row, widget = self._messages.row_of(message_id), self._view.widget_of(message_id)
        if row is None or widget is None:
            return
        menu = message_menu(self._look, row, self, selected=widget.body.selected_text())
        chosen = menu.exec(place)
        if chosen is not None:
            self._act(chosen.data(), message_id)
        menu.deleteLater()
