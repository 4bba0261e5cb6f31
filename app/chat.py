"""Everything the window or the terminal can do with conversations.

Rows first, engine second: what the user wrote is on disk before the model hears of it. Every method
returns at once; the engine's answers come as events.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from app.cloning import CloneJob, CloneResult, answered, transcript_of
from app.conversation import Conversation, Message, MessageStatus, Readiness, Role, SearchHit
from app.errors import DatabaseError
from app.events import ConversationChanged, Listener, ReplyFinished, ReplyQueued
from app.full_context import FullContext
from app.jobs import LookAgainJob, ReleaseJob
from app.prompting import Prompting, ReplyOptions
from app.readiness import ReadinessBook, ReadinessJob
from app.reply_job import ReplyJob
from app.reply_row import ReplyRow
from app.residency import Residency
from app.settings_file import SettingsStore
from app.store.chat_store import ChatStore
from app.titles import title_from
from app.unsaved import UnsavedReplies
from app.worker import EngineWorker, JobHandle, Priority
from engine.config import SamplingParams

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    """A reply that is running or waiting."""

    conversation_id: str
    job: ReplyJob
    handle: JobHandle


class ChatService:
    """Conversations over one store and one engine worker."""

    def __init__(
        self, store: ChatStore, worker: EngineWorker, settings: SettingsStore, emit: Listener
    ) -> None:
        self._store = store
        self._worker = worker
        self._settings = settings
        self._emit = emit
        self.residency = Residency(
            store, worker, settings, on_moved=lambda moved: self._look_at([moved])
        )
        self.prompting = Prompting(store, worker, settings)
        self.full_context = FullContext(
            store, start=self._start, send=self.send, changed=self._changed
        )
        self._readiness = ReadinessBook()
        self._unsaved = UnsavedReplies(store, on_saved=self._saved_late)
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        self._shown: str | None = None

    # Conversations

    def new_conversation(self, *, system_prompt: str = "") -> Conversation:
        """Add an empty conversation."""
        conversation = self._store.create_conversation(system_prompt=system_prompt)
        self._changed(conversation.id)
        return conversation

    def conversations(self, *, include_archived: bool = False) -> list[Conversation]:
        """Return the conversations in the order of the list."""
        return self._store.conversations(include_archived=include_archived)

    def conversation(self, conversation_id: str) -> Conversation:
        """Return one conversation. Raises: NotFoundError."""
        return self._store.conversation(conversation_id)

    def path(self, conversation_id: str) -> list[Message]:
        """Return the messages of the branch on screen, replies under way as far as they are."""
        path = self._store.path(conversation_id)
        with self._lock:
            running = dict(self._running)
        return [
            running[message.id].job.overlay(message)
            if message.id in running
            else self._unsaved.overlay(message)
            for message in path
        ]

    def open(self, conversation_id: str) -> list[Message]:
        """Show a conversation: its messages, no longer unread, made ready in the background."""
        self._shown = conversation_id
        self._store.record_visit(conversation_id)
        if self._store.conversation(conversation_id).is_unread:
            self._store.update_conversation(conversation_id, is_unread=False)
            self._changed(conversation_id)
        self.prefetch(conversation_id)
        return self.path(conversation_id)

    def close_shown(self) -> None:
        """Show no conversation: replies that end now are unread."""
        self._shown = None

    def rename(self, conversation_id: str, title: str) -> None:
        """Give a conversation a title."""
        self._store.update_conversation(conversation_id, title=title.strip())
        self._changed(conversation_id)

    def set_pinned(self, conversation_id: str, is_pinned: bool) -> None:
        """Pin a conversation to the top of the list, or not."""
        self._store.update_conversation(conversation_id, is_pinned=is_pinned)
        self._changed(conversation_id)

    def set_archived(self, conversation_id: str, is_archived: bool) -> None:
        """Take a conversation out of the list, or back."""
        self._store.update_conversation(conversation_id, is_archived=is_archived)
        self._changed(conversation_id)

    def set_folder(self, conversation_id: str, folder: str) -> None:
        """Put a conversation into a folder; "" is none."""
        self._store.update_conversation(conversation_id, folder=folder.strip())
        self._changed(conversation_id)

    def move(self, conversation_id: str, *, before_id: str | None) -> None:
        """Place a conversation before another one, or last."""
        self._store.move_conversation(conversation_id, before_id=before_id)
        self._changed(conversation_id)

    def set_draft(self, conversation_id: str, text: str) -> None:
        """Keep what is being written; no event."""
        self._store.update_conversation(conversation_id, draft=text)

    def set_system_prompt(self, conversation_id: str, text: str) -> None:
        """Set the system prompt; the history is read again at the next turn."""
        self._store.update_conversation(conversation_id, system_prompt=text)
        self._changed(conversation_id)

    def set_sampling(self, conversation_id: str, sampling: SamplingParams | None) -> None:
        """Set how tokens are drawn here; None follows the settings."""
        self._store.update_conversation(conversation_id, sampling=sampling)
        self._changed(conversation_id)

    def delete_conversation(self, conversation_id: str) -> None:
        """Hide a conversation and give its hot memory back; it can be undone."""
        self.stop(conversation_id)
        self._store.delete_conversation(conversation_id)
        if conversation_id == self._shown:
            self.close_shown()
        self.residency.release(conversation_id)
        self._changed(conversation_id)

    def undo_delete_conversation(self, conversation_id: str) -> None:
        """Bring a deleted conversation back."""
        self._store.restore_conversation(conversation_id)
        self._changed(conversation_id)

    def clone(
        self,
        conversation_id: str,
        *,
        decay: float,
        on_done: Callable[[CloneResult], None] = lambda result: None,
    ) -> Conversation:
        """Copy the branch on screen into a new conversation, and return that.

        decay: the part of what was read that the copy's memory keeps, in (0, 1]. on_done is told
        on the engine thread; without a model once one is loaded.
        """
        source = self._store.conversation(conversation_id)
        copy = self._store.add_transcript(transcript_of(source, self.path(conversation_id)))
        self._store.update_conversation(copy.id, sampling=source.sampling)
        job = CloneJob(
            conversation_id,
            copy.id,
            messages=lambda: answered(self.prompting.messages(copy.id)),
            decay=decay,
            on_done=partial(self._cloned, on_done),
        )
        self._worker.submit(job)
        self._changed(copy.id)
        return copy

    def search(self, text: str) -> list[SearchHit]:
        """Return the conversations whose title or text holds the words."""
        return self._store.search(text)

    # Messages

    def send(
        self, conversation_id: str, text: str, *, options: ReplyOptions | None = None
    ) -> tuple[Message, Message]:
        """Add the user's message and queue the reply; return both rows."""
        message, (reply,) = self.send_for_versions(conversation_id, text, 1, options=options)
        return message, reply

    def send_for_versions(
        self, conversation_id: str, text: str, n: int, *, options: ReplyOptions | None = None
    ) -> tuple[Message, list[Message]]:
        """Add the user's message and queue n replies, which grow together; return all rows.

        The replies are versions of each other; the first is on the branch on screen.
        """
        self._unsaved.save()  # what the model is asked to go on from
        conversation = self._store.conversation(conversation_id)
        message = self._store.add_message(
            conversation_id, parent_id=conversation.leaf_id, role=Role.USER, content=text
        )
        if not conversation.title:
            self._store.update_conversation(conversation_id, title=title_from(text))
        return message, self._replies_to(message, n, options)

    def regenerate(self, message_id: str) -> Message:
        """Queue another version of a reply; return its row."""
        self._unsaved.save()
        old = self._store.message(message_id)
        assert old.parent_id is not None
        return self._reply_to(self._store.message(old.parent_id))

    def edit(self, message_id: str, text: str) -> tuple[Message, Message] | Message:
        """Add another version of a message; one of the user's is answered too."""
        self._unsaved.save()
        old = self._store.message(message_id)
        message = self._store.add_message(
            old.conversation_id, parent_id=old.parent_id, role=old.role, content=text
        )
        if old.role is not Role.USER:
            self._changed(old.conversation_id)
            return message
        return message, self._reply_to(message)

    def continue_reply(self, message_id: str) -> Message:
        """Go on with a reply that was stopped or cut off; return its row."""
        self._unsaved.save()
        reply = self._store.update_message(message_id, status=MessageStatus.STREAMING, error="")
        self._start(reply)
        return reply

    def stop(self, conversation_id: str) -> None:
        """End every reply of a conversation that is running or waiting."""
        for handle in self._handles(conversation_id):
            handle.cancel()

    def show_version(self, message_id: str) -> list[Message]:
        """Show the branch of a message; return its path."""
        conversation_id = self._store.message(message_id).conversation_id
        self._store.set_leaf(conversation_id, message_id)
        self._changed(conversation_id)
        return self.path(conversation_id)

    def versions(self, message_id: str) -> list[Message]:
        """Return all versions of a message, oldest first."""
        return self._store.siblings(message_id)

    def delete_message(self, message_id: str) -> None:
        """Hide a message and what follows it; it can be undone."""
        message = self._store.message(message_id)
        self.stop(message.conversation_id)
        self._store.delete_message(message_id)
        self._changed(message.conversation_id)

    def set_message_pinned(self, message_id: str, is_pinned: bool) -> Message:
        """Let a message stay when the context is full, or not; return its row."""
        message = self._store.update_message(message_id, is_pinned=is_pinned)
        self._changed(message.conversation_id)
        return message

    def undo_delete_message(self, message_id: str) -> None:
        """Bring a deleted message back."""
        self._store.restore_message(message_id)
        self._changed(self._store.message(message_id).conversation_id)

    # State

    def is_busy(self, conversation_id: str) -> bool:
        """Tell whether a reply is running or waiting."""
        return any(True for _ in self._handles(conversation_id))

    def context_use(self, conversation_id: str) -> tuple[int, int] | None:
        """Return tokens in the context and its size, where both are known."""
        model = self._worker.model
        tokens = self._store.conversation(conversation_id).num_tokens
        return (tokens, model.context_length) if model is not None and tokens is not None else None

    def readiness(self, conversation_id: str) -> Readiness | None:
        """Return how soon a conversation can go on, as last seen."""
        return self._readiness.get(conversation_id)

    def prefetch(self, conversation_id: str) -> None:
        """Bring a conversation's stored state into memory while nothing else is to be done."""
        if not self.is_busy(conversation_id):
            self.residency.prefetch(conversation_id)

    def look_again(self, conversation_id: str) -> None:
        """Take in what another machine has read of a conversation, in the background."""
        if self._worker.model is not None:
            look = LookAgainJob(conversation_id, on_found=lambda found: self._look_at([found]))
            self._worker.submit(look)

    def note_changed(self, conversation_id: str) -> None:
        """Tell that messages of a conversation came from another machine."""
        self._changed(conversation_id)
        self._look_at([conversation_id])

    def idle_job(self) -> ReleaseJob | None:
        """Save what could not be saved before; return work for an idle moment."""
        self._unsaved.try_to_save()
        return self.residency.idle_job()

    def save_pending(self) -> bool:
        """Save what could not be saved before; False where that is still not possible."""
        return self._unsaved.try_to_save()

    def refresh_readiness(self, *, is_new_model: bool = False) -> None:
        """Look at every conversation again, in the background."""
        if is_new_model:
            self._readiness.clear()
            self.residency.clear()
        self._look_at([conversation.id for conversation in self._store.conversations()])

    def _reply_to(self, message: Message, options: ReplyOptions | None = None) -> Message:
        (reply,) = self._replies_to(message, 1, options)
        return reply

    def _replies_to(self, message: Message, n: int, options: ReplyOptions | None) -> list[Message]:
        replies = [
            self._store.add_message(
                message.conversation_id,
                parent_id=message.id,
                role=Role.ASSISTANT,
                content="",
                status=MessageStatus.STREAMING,
            )
            for _ in range(n)
        ]
        if n > 1:
            self._store.set_leaf(message.conversation_id, replies[0].id)
        self._start_all(replies, options)
        self._changed(message.conversation_id)
        return replies

    def _start(self, reply: Message, options: ReplyOptions | None = None) -> None:
        self._start_all([reply], options)

    def _start_all(self, replies: list[Message], options: ReplyOptions | None) -> None:
        first = replies[0]
        job = ReplyJob(
            [self._row(reply) for reply in replies],
            build_request=lambda: self.prompting.request(first, options or ReplyOptions()),
        )
        # Told before the engine thread can tell anything else of these replies.
        ahead = self._worker.num_ahead(Priority.FOREGROUND)
        for reply in replies:
            self._emit(ReplyQueued(reply.conversation_id, reply.id, ahead))
        self.residency.note_use(first.conversation_id)
        with self._lock:
            handle = self._worker.submit(job, conversation_id=first.conversation_id)
            for reply in replies:
                self._running[reply.id] = _Running(reply.conversation_id, job, handle)

    def _row(self, reply: Message) -> ReplyRow:
        return ReplyRow(
            reply,
            store=self._store,
            unsaved=self._unsaved,
            emit=self._emit,
            on_finished=self._finished,
        )

    def _finished(self, message: Message) -> None:
        """Note a reply's end. Runs on the engine thread."""
        with self._lock:
            self._running.pop(message.id, None)
        conversation_id = message.conversation_id
        try:
            self._note_end(message)
        except DatabaseError as error:
            log.warning("what a conversation came to cannot be saved: %s", error)
        self._changed(conversation_id)
        self.residency.note_use(conversation_id)
        self._look_at([conversation_id])
        self.residency.prefetch_likely(conversation_id)

    def _note_end(self, message: Message) -> None:
        """Keep how long the conversation is by now, and whether the reply was seen."""
        conversation_id, model = message.conversation_id, self._worker.model
        if message.stats is not None and model is not None:
            usage = message.stats.usage
            num_tokens = usage.prompt_tokens + usage.completion_tokens
            self._store.update_conversation(
                conversation_id, num_tokens=num_tokens, model=model.path
            )
        if conversation_id != self._shown:
            self._store.update_conversation(conversation_id, is_unread=True)

    def _saved_late(self, message: Message) -> None:
        self._note_end(message)
        self._emit(ReplyFinished(message))
        self._changed(message.conversation_id)

    def _cloned(self, on_done: Callable[[CloneResult], None], result: CloneResult) -> None:
        if result.error is None:
            self.residency.note_use(result.conversation_id)
            self._look_at([result.conversation_id])
        on_done(result)

    def _look_at(self, conversation_ids: list[str]) -> None:
        if self._worker.model is not None:
            self._worker.submit(
                ReadinessJob(
                    conversation_ids,
                    book=self._readiness,
                    messages_of=self.prompting.messages,
                    emit=self._emit,
                )
            )

    def _handles(self, conversation_id: str) -> Iterator[JobHandle]:
        with self._lock:
            running = list(self._running.values())
        return (one.handle for one in running if one.conversation_id == conversation_id)

    def _changed(self, conversation_id: str) -> None:
        self._emit(ConversationChanged(conversation_id))
