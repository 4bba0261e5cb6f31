"""The generation of replies as a job: usually one, or several to the same message together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from app.conversation import Message
from app.events import ErrorReport
from app.full_context import question_for
from app.prompting import ReplyRequest
from app.reply_row import ReplyRow
from app.worker import Priority
from engine.config import Overflow
from engine.events import BatchEvent, ContextCut

if TYPE_CHECKING:
    from engine.engine import Engine


class ReplyJob:
    """Generates into reply rows; several are versions of each other and share their prompt.

    build_request is called when the job starts, so that a reply still being written above this one
    is complete by then.
    """

    def __init__(
        self,
        rows: Sequence[ReplyRow],
        *,
        build_request: Callable[[], ReplyRequest],
        priority: Priority = Priority.FOREGROUND,
    ) -> None:
        self.priority = priority
        self._rows = rows
        self._build_request = build_request

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Generate, one event a step."""
        asked = self._build_request()
        if asked.request.overflow is Overflow.ASK and self._asks(asked, engine):
            return
        if not asked.request.dropped:
            for row in self._rows:
                row.forget_left_out()
        count = len(self._rows)
        for one in engine.generate_batch(
            asked.request, count, is_cancelled=lambda index: is_cancelled()
        ):
            for row in self._concerned(one):
                row.take(one.event, asked, engine)
            yield

    def overlay(self, message: Message) -> Message:
        """Return a row of this job with the text drawn so far, which the store has not seen yet."""
        return next(row for row in self._rows if row.id == message.id).overlay(message)

    def failed(self, error: ErrorReport) -> None:
        """Keep what there is of the replies, and say why there is no more."""
        for row in self._rows:
            row.failed(error)

    def _concerned(self, one: BatchEvent) -> Sequence[ReplyRow]:
        """Return the rows of an event: what the prompt lacks is lacking for all."""
        return self._rows if isinstance(one.event, ContextCut) else (self._rows[one.index],)

    def _asks(self, asked: ReplyRequest, engine: Engine) -> bool:
        """End with a question where the context is full; False where it is not."""
        found = engine.overflow_question(asked.request)
        if found is None:
            return False
        question = question_for(found, asked.branch, engine.rates())
        for row in self._rows:
            row.ask(question)
        return True
