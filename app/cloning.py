"""A copy of a conversation: its rows at once, its memory, whole or thinned out, soon after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.conversation import Conversation, Message, MessageStatus
from app.events import ErrorReport
from app.transcript import Transcript, TranscriptMessage
from app.worker import Priority
from engine.config import ChatMessage

if TYPE_CHECKING:
    from engine.engine import Engine


@dataclass(frozen=True, slots=True)
class CloneResult:
    """What became of a copy's memory. num_places: tokens kept of the num_tokens read.

    error: why nothing could be kept; the copy is read anew at its next turn then.
    """

    conversation_id: str
    num_tokens: int = 0
    num_places: int = 0
    error: ErrorReport | None = None


class CloneJob:
    """Copies the memory of a branch into another conversation.

    messages: the branch, asked for when the job starts. on_done is told on the engine thread.
    """

    priority = Priority.ASIDE

    def __init__(
        self,
        source_id: str,
        copy_id: str,
        *,
        messages: Callable[[], tuple[ChatMessage, ...]],
        decay: float,
        on_done: Callable[[CloneResult], None],
    ) -> None:
        self._source_id = source_id
        self._copy_id = copy_id
        self._messages = messages
        self._decay = decay
        self._on_done = on_done

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Copy in one step."""
        cloned = engine.clone(self._source_id, self._messages(), self._copy_id, self._decay)
        self._on_done(CloneResult(self._copy_id, cloned.num_tokens, cloned.num_places))
        yield

    def failed(self, error: ErrorReport) -> None:
        """Tell that the copy will be read anew."""
        self._on_done(CloneResult(self._copy_id, error=error))


def transcript_of(conversation: Conversation, path: Sequence[Message]) -> Transcript:
    """Return the branch on screen as a conversation of its own, an unfinished reply left out."""
    messages = [
        TranscriptMessage(
            id=message.id,
            parent_id=message.parent_id,
            role=message.role,
            content=message.content,
            created_at=message.created_at,
            reasoning=message.reasoning,
            status=message.status,
            is_pinned=message.is_pinned,
            left_out=message.left_out,
        )
        for message in path
        if message.status not in (MessageStatus.STREAMING, MessageStatus.ASKING)
    ]
    return Transcript(
        title=conversation.title,
        messages=tuple(messages),
        system_prompt=conversation.system_prompt,
        model=conversation.model,
        folder=conversation.folder,
    )


def answered(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Return the messages up to the last reply: what follows it was not read yet."""
    count = len(messages)
    while count and messages[count - 1].role != "assistant":
        count -= 1
    return messages[:count]
