"""One reply row: the engine's events become text in the store and events for the window."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from app.conversation import ContextQuestion, Message, MessageStatus, ReplyStats
from app.errors import DatabaseError
from app.events import (
    ErrorReport,
    Listener,
    ReplyDelta,
    ReplyFinished,
    ReplyProgress,
    ReplyTrimmed,
)
from app.full_context import left_out
from app.prompting import ReplyRequest
from app.store.chat_store import ChatStore
from app.unsaved import UnsavedReplies
from engine.events import (
    Channel,
    ContextCut,
    Finished,
    FinishReason,
    GenerateEvent,
    PrefillProgress,
    TextDelta,
)

if TYPE_CHECKING:
    from engine.engine import Engine

_log = logging.getLogger(__name__)

SAVE_EVERY_SECONDS = 0.5

_STATUS = {
    FinishReason.STOP: MessageStatus.COMPLETE,
    FinishReason.LENGTH: MessageStatus.LENGTH,
    FinishReason.CANCELLED: MessageStatus.STOPPED,
}


@dataclass(slots=True)
class _Progress:
    """The reply as far as it got. tokens counted from the first delta."""

    content: str
    reasoning: str
    started: float = field(default_factory=time.monotonic)
    first_delta: float | None = None
    saved: float = 0.0


class ReplyRow:
    """Writes one reply. Its text is in the store at most a second after it was drawn.

    unsaved: where it goes when the store does not take its last form. on_finished is called on the
    engine thread when the row has that form.
    """

    def __init__(
        self,
        reply: Message,
        *,
        store: ChatStore,
        unsaved: UnsavedReplies,
        emit: Listener,
        on_finished: Callable[[Message], None],
    ) -> None:
        self.id = reply.id
        self._reply = reply
        self._store = store
        self._unsaved = unsaved
        self._emit = emit
        self._on_finished = on_finished
        self._progress = _Progress(reply.content, reply.reasoning)
        self._is_ended = False

    def take(self, event: GenerateEvent, asked: ReplyRequest, engine: Engine) -> None:
        """Note what happened to the reply."""
        match event:
            case ContextCut():
                self._trimmed(event, asked, engine)
            case PrefillProgress():
                self._prefilled(event)
            case TextDelta():
                self._grew(event)
            case Finished():
                self._finish(event, engine)

    def forget_left_out(self) -> None:
        """Note that the reply will see every message, where it did not before."""
        if self._reply.left_out is not None:
            nothing = replace(self._reply.left_out, ids=(), num_tokens=0)
            self._store.update_message(self._reply.id, left_out=nothing)

    def ask(self, question: ContextQuestion) -> None:
        """End with a question: the context is full."""
        self._store.update_message(self._reply.id, question=question)
        self._end(MessageStatus.ASKING, None, None)

    def overlay(self, message: Message) -> Message:
        """Return the reply's row with the text drawn so far, which the store has not seen yet."""
        progress = self._progress
        return replace(message, content=progress.content, reasoning=progress.reasoning)

    def failed(self, error: ErrorReport) -> None:
        """Keep what there is of the reply, and say why there is no more."""
        if not self._is_ended:
            self._end(MessageStatus.ERROR, None, error)

    def _trimmed(self, cut: ContextCut, asked: ReplyRequest, engine: Engine) -> None:
        out = left_out(cut, asked.branch, engine.info.context_length)
        self._store.update_message(self._reply.id, left_out=out)
        self._emit(ReplyTrimmed(self._reply.conversation_id, self._reply.id, out))

    def _prefilled(self, event: PrefillProgress) -> None:
        read = event.done_tokens - event.reused_tokens
        elapsed = time.monotonic() - self._progress.started
        left = event.total_tokens - event.done_tokens
        self._emit(
            ReplyProgress(
                self._reply.conversation_id,
                self._reply.id,
                event.done_tokens,
                event.total_tokens,
                event.reused_tokens,
                seconds_left=left * elapsed / read if read > 0 else None,
            )
        )

    def _grew(self, event: TextDelta) -> None:
        progress, now = self._progress, time.monotonic()
        if event.channel is Channel.REASONING:
            offset = len(progress.reasoning)
            progress.reasoning += event.text
        else:
            offset = len(progress.content)
            progress.content += event.text
        if progress.first_delta is None:
            progress.first_delta = now
        seconds = now - progress.first_delta
        rate = (event.num_tokens - 1) / seconds if seconds > 0.05 else 0.0
        owner, reply = self._reply.conversation_id, self._reply.id
        self._emit(ReplyDelta(owner, reply, event.text, event.channel, rate, offset))
        if now - progress.saved >= SAVE_EVERY_SECONDS:
            progress.saved = now
            self._save_progress()

    def _save_progress(self) -> None:
        """Store the text so far. Where that fails the reply goes on: its end is tried again."""
        try:
            self._store.update_message(
                self._reply.id,
                content=self._progress.content,
                reasoning=self._progress.reasoning,
            )
        except DatabaseError as error:
            _log.warning("a reply cannot be saved now: %s", error)

    def _finish(self, event: Finished, engine: Engine) -> None:
        stats = ReplyStats(event.usage, event.timing, event.miss_reason, engine.info.name)
        self._end(_STATUS[event.finish_reason], stats, None, event.token_ids)

    def _end(
        self,
        status: MessageStatus,
        stats: ReplyStats | None,
        error: ErrorReport | None,
        token_ids: tuple[int, ...] = (),
    ) -> None:
        self._is_ended = True
        message = replace(
            self.overlay(self._reply),
            status=status,
            stats=stats,
            error=error.message if error is not None else "",
            error_kind=error.kind if error is not None else "",
        )
        message, problem = self._unsaved.save_or_keep(message)
        self._on_finished(message)
        self._emit(ReplyFinished(message, error or problem, token_ids))
