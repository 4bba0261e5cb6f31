"""The conversation on screen: what the chat pane asks for, and what it is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot

from app.conversation import Conversation
from app.errors import AppError
from app.events import ReplyDelta, ReplyFinished, ReplyProgress, ReplyQueued, ReplyTrimmed
from engine.config import Overflow
from ui.bridge import Bridge
from ui.chat.question_card import CANCEL, START_OVER
from ui.error_words import short_words

if TYPE_CHECKING:
    from app.services import Services
    from ui.chat.chat_pane import ChatPane


class OpenChat(QObject):
    """Joins one chat pane to the chat service. ``current`` is None for a chat not yet begun."""

    changed = Signal(object)
    failed = Signal(str)
    message_deleted = Signal(str)
    settings_changed = Signal()
    new_draft_changed = Signal(str)

    def __init__(self, services: Services, bridge: Bridge, pane: ChatPane) -> None:
        super().__init__(pane)
        self._chat = services.chat
        self._settings = services.settings
        self._pane = pane
        self.current: str | None = None
        self.new_draft = ""
        self._connect_pane(pane)
        bridge.reply_queued.connect(self._queued)
        bridge.reply_trimmed.connect(self._trimmed)
        bridge.reply_progress.connect(self._progressed)
        bridge.reply_delta.connect(self._grown)
        bridge.reply_finished.connect(self._finished)

    @Slot()
    def new(self) -> None:
        """Show an empty chat; its row is made with the first message."""
        self.flush()
        self.current = None
        self._chat.close_shown()
        self._pane.set_conversation(None, [], self.new_draft)
        self.show_state()
        self.changed.emit(None)

    @Slot(str)
    def open(self, conversation_id: str) -> None:
        """Show a conversation where it stopped."""
        if conversation_id == self.current:
            return
        self.flush()
        try:
            messages = self._chat.open(conversation_id)
            conversation = self._chat.conversation(conversation_id)
        except AppError as error:
            self.failed.emit(short_words(type(error).__name__, str(error)))
            return
        self.current = conversation_id
        self._pane.set_conversation(conversation, messages, conversation.draft)
        self.show_state()
        self.changed.emit(conversation_id)

    def conversation(self) -> Conversation | None:
        """Return the row of the conversation on screen."""
        return self._chat.conversation(self.current) if self.current else None

    @Slot()
    def flush(self) -> None:
        """Store the draft now, while ``current`` is still the conversation it belongs to."""
        self._pane.composer.flush_draft()

    @Slot(str)
    def undo_delete(self, message_id: str) -> None:
        """Bring a deleted message back."""
        self._chat.undo_delete_message(message_id)
        self._show_path()

    def _connect_pane(self, pane: ChatPane) -> None:
        pane.send_requested.connect(self._send)
        pane.stop_requested.connect(self._stop)
        pane.regenerate_requested.connect(self._regenerate)
        pane.edit_requested.connect(self._edit)
        pane.continue_requested.connect(self._continue)
        pane.version_requested.connect(self._show_version)
        pane.delete_requested.connect(self._delete)
        pane.pin_requested.connect(self._pin)
        pane.question_answered.connect(self._answer)
        pane.draft_changed.connect(self._keep_draft)

    @Slot(str)
    def _send(self, text: str) -> None:
        with self._written(text):
            if self.current is None:
                self._begin()
            assert self.current is not None
            self._chat.send(self.current, text)
            self._chat.set_draft(self.current, "")

    @contextmanager
    def _written(self, text: str) -> Iterator[None]:
        """Show what the block stored of a text; where it could not, let it be written on."""
        before = self._leaf()
        with self._told():
            yield
        if self._leaf() == before:
            self._take_back(text)
        self._show_path()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say what could not be done; what the block did before that is done."""
        try:
            yield
        except AppError as error:
            self.failed.emit(short_words(type(error).__name__, str(error)))

    def _leaf(self) -> str | None:
        return self._chat.conversation(self.current).leaf_id if self.current else None

    def _begin(self) -> None:
        conversation = self._chat.new_conversation()
        self._keep_draft("")
        self.current = conversation.id
        self._chat.open(conversation.id)
        self._pane.set_conversation(conversation, [], "")
        self.changed.emit(conversation.id)

    @Slot()
    def _stop(self) -> None:
        if self.current:
            self._chat.stop(self.current)

    @Slot(str)
    def _regenerate(self, message_id: str) -> None:
        with self._told():
            self._chat.regenerate(message_id)
        self._show_path()

    @Slot(str, str)
    def _edit(self, message_id: str, text: str) -> None:
        with self._written(text):
            self._chat.edit(message_id, text)

    @Slot(str)
    def _continue(self, message_id: str) -> None:
        with self._told():
            self._chat.continue_reply(message_id)
        self._show_path()

    @Slot(str, int)
    def _show_version(self, message_id: str, version: int) -> None:
        wanted = self._chat.versions(message_id)[version - 1]
        self._pane.set_path(self._chat.show_version(wanted.id))

    @Slot(str)
    def _delete(self, message_id: str) -> None:
        self._chat.delete_message(message_id)
        self._show_path()
        self.message_deleted.emit(message_id)

    @Slot(str, bool)
    def _pin(self, message_id: str, is_pinned: bool) -> None:
        self._chat.set_message_pinned(message_id, is_pinned)
        self._show_path()

    @Slot(str, str, bool)
    def _answer(self, message_id: str, answer: str, is_always: bool) -> None:
        """Do about a full context what was chosen."""
        if answer == START_OVER:
            self.open(self._chat.full_context.start_over(message_id).id)
            return
        if answer == CANCEL:
            self._take_back(self._chat.full_context.cancel(message_id))
        else:
            if is_always:
                self._settings.update(overflow=answer)
                self.settings_changed.emit()
            self._chat.full_context.choose(message_id, Overflow(answer))
        self._show_path()

    def _take_back(self, text: str) -> None:
        """Let a message that was not sent be written on, beside what was written since."""
        if text:
            written = self._pane.composer.editor.text()
            whole = "\n\n".join(filter(None, (text, written)))
            self._pane.composer.set_draft(whole)
            self._keep_draft(whole)

    @Slot(str)
    def _keep_draft(self, text: str) -> None:
        if self.current is None:
            self.new_draft = text
            self.new_draft_changed.emit(text)
        else:
            with self._told():
                self._chat.set_draft(self.current, text)

    @Slot(ReplyQueued)
    def _queued(self, event: ReplyQueued) -> None:
        if event.conversation_id == self.current:
            self._pane.apply_queued(event)

    @Slot(ReplyTrimmed)
    def _trimmed(self, event: ReplyTrimmed) -> None:
        if event.conversation_id == self.current:
            self._pane.apply_trimmed(event)

    @Slot(ReplyProgress)
    def _progressed(self, event: ReplyProgress) -> None:
        if event.conversation_id == self.current:
            self._pane.apply_progress(event)

    @Slot(ReplyDelta)
    def _grown(self, event: ReplyDelta) -> None:
        if event.conversation_id == self.current:
            self._pane.apply_delta(event)

    @Slot(ReplyFinished)
    def _finished(self, event: ReplyFinished) -> None:
        if event.message.conversation_id == self.current:
            self._pane.apply_finished(event)
            self.show_state()

    def _show_path(self) -> None:
        if self.current:
            self._pane.set_path(self._chat.path(self.current))

    @Slot()
    def show_state(self) -> None:
        """Show how full the context is and how much of it is ready."""
        use = self._chat.context_use(self.current) if self.current else None
        self._pane.set_context_use(*(use or (None, 0)))
        self._pane.set_readiness(self._chat.readiness(self.current) if self.current else None)
