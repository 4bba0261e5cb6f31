"""The messages on screen and what is known of each while it is being written. No widgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from app.conversation import LeftOut, Message, MessageStatus, Role
from app.events import ReplyDelta, ReplyFinished, ReplyProgress, ReplyQueued, ReplyTrimmed
from engine.events import Channel


@dataclass(slots=True)
class Row:
    """A message and the state of its view, which outlives the widget.

    queue_position: None when it does not wait. edit_text: the text being edited, or None.
    is_reasoning_open: None until the person chose. is_last: nothing follows on this branch.
    is_gone: the model no longer sees it; num_gone_before: messages right above that it no longer
    sees; left_out: how that came.
    """

    message: Message
    progress: ReplyProgress | None = None
    queue_position: int | None = None
    tokens_per_second: float = 0.0
    edit_text: str | None = None
    is_reasoning_open: bool | None = None
    is_last: bool = False
    is_gone: bool = False
    num_gone_before: int = 0
    left_out: LeftOut | None = None

    @property
    def is_live(self) -> bool:
        """Tell whether more of it is on its way."""
        return self.message.status is MessageStatus.STREAMING

    @property
    def is_user(self) -> bool:
        """Tell whether the person wrote it."""
        return self.message.role is Role.USER


class MessageModel(QObject):
    """A path from the root to the leaf, changed by events of the reply at its end."""

    reset = Signal(int)
    """First row that is another one now; rows before it are the same."""
    changed = Signal(int)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[Row] = []
        self._places: dict[str, int] = {}

    def set_path(self, messages: Sequence[Message]) -> None:
        """Show this path; rows that it shares with the one before keep their state."""
        shown = [message for message in messages if message.role is not Role.SYSTEM]
        keep = self._num_shared(shown)
        old = {row.message.id: row for row in self.rows[keep:]}
        for row, message in zip(self.rows[:keep], shown, strict=False):
            self._update(row, message)
        self.rows[keep:] = [self._row(message, old.get(message.id)) for message in shown[keep:]]
        self._places = {row.message.id: index for index, row in enumerate(self.rows)}
        for index, row in enumerate(self.rows):
            row.is_last = index == len(self.rows) - 1
        self._mark_gone()
        self.reset.emit(keep)

    def row_of(self, message_id: str) -> Row | None:
        """Return the row of a message, if it is on this path."""
        place = self._places.get(message_id)
        return None if place is None else self.rows[place]

    def place_of(self, message_id: str) -> int | None:
        """Return the number of a message's row, if it is on this path."""
        return self._places.get(message_id)

    @property
    def live_row(self) -> Row | None:
        """The reply that is being written or waits, if there is one."""
        return next((row for row in reversed(self.rows) if row.is_live), None)

    def last_own(self) -> Row | None:
        """Return the last message of the person."""
        return next((row for row in reversed(self.rows) if row.is_user), None)

    def apply_queued(self, event: ReplyQueued) -> None:
        """Note how long a reply still waits."""
        if row := self.row_of(event.message_id):
            row.queue_position = event.position
            self._emit_changed(event.message_id)

    def apply_progress(self, event: ReplyProgress) -> None:
        """Note how much of the prompt has been read."""
        if row := self.row_of(event.message_id):
            row.queue_position, row.progress = None, event
            self._emit_changed(event.message_id)

    def apply_delta(self, event: ReplyDelta) -> None:
        """Append text to a reply."""
        row = self.row_of(event.message_id)
        if row is None or not row.is_live:
            return
        row.queue_position, row.progress = None, None
        row.tokens_per_second = event.tokens_per_second
        if event.channel is Channel.REASONING:
            text = row.message.reasoning + _unseen(event, row.message.reasoning)
            row.message = replace(row.message, reasoning=text)
        else:
            text = row.message.content + _unseen(event, row.message.content)
            row.message = replace(row.message, content=text)
        self._emit_changed(event.message_id)

    def apply_finished(self, event: ReplyFinished) -> None:
        """Take the reply in its last form."""
        if row := self.row_of(event.message.id):
            # The store counts versions when it reads a path; the event may not have them.
            known = row.message
            row.message = replace(
                event.message,
                version=max(known.version, event.message.version),
                num_versions=max(known.num_versions, event.message.num_versions),
            )
            row.progress, row.queue_position, row.tokens_per_second = None, None, 0.0
            marked = [one.message.id for one in self._mark_gone()]
            for message_id in {event.message.id, *marked}:
                self._emit_changed(message_id)

    def apply_trimmed(self, event: ReplyTrimmed) -> None:
        """Note what a reply is written without."""
        if row := self.row_of(event.message_id):
            row.message = replace(row.message, left_out=event.left_out)
            for marked in self._mark_gone():
                self._emit_changed(marked.message.id)

    def in_context(self) -> list[Message]:
        """Return the messages that the model sees; counts of other contexts are taken off."""
        out = self._left_out()
        ids = out.ids if out else ()
        return [
            row.message if _context_of(row.message) == ids else replace(row.message, stats=None)
            for row in self.rows
            if not row.is_gone
        ]

    def touch(self, message_id: str) -> None:
        """Tell views that the state of a row was changed."""
        self._emit_changed(message_id)

    def _emit_changed(self, message_id: str) -> None:
        self.changed.emit(self._places[message_id])

    def _left_out(self) -> LeftOut | None:
        """Return what the latest reply was written without."""
        for row in reversed(self.rows):
            message = row.message
            has_begun = bool(message.content or message.reasoning or message.left_out)
            if not row.is_user and has_begun and message.status is not MessageStatus.ASKING:
                return message.left_out
        return None

    def _mark_gone(self) -> list[Row]:
        """Mark what the model no longer sees; return the rows that look different now."""
        out = self._left_out()
        ids = set(out.ids) if out else set()
        changed, num_gone = [], 0
        for row in self.rows:
            before = (row.is_gone, row.num_gone_before, row.left_out)
            row.is_gone, row.left_out = row.message.id in ids, out
            row.num_gone_before = 0 if row.is_gone else num_gone
            num_gone = num_gone + 1 if row.is_gone else 0
            if before != (row.is_gone, row.num_gone_before, row.left_out):
                changed.append(row)
        return changed

    def _num_shared(self, messages: Sequence[Message]) -> int:
        keep = 0
        for row, message in zip(self.rows, messages, strict=False):
            if row.message.id != message.id:
                break
            keep += 1
        return keep

    def _row(self, message: Message, old: Row | None) -> Row:
        if old is None:
            return Row(message)
        self._update(old, message)
        return old

    def _update(self, row: Row, message: Message) -> None:
        # A row read from the store may be a second older than what has been streamed.
        if row.is_live and message.status is MessageStatus.STREAMING:
            longest = max(row.message.content, message.content, key=len)
            thoughts = max(row.message.reasoning, message.reasoning, key=len)
            message = replace(message, content=longest, reasoning=thoughts)
        row.message = message


def _context_of(message: Message) -> tuple[str, ...]:
    return message.left_out.ids if message.left_out else ()


def _unseen(event: ReplyDelta, known: str) -> str:
    """Return the part of a piece that is not in the text yet."""
    overlap = 0 if event.offset is None else len(known) - event.offset
    return event.text[max(0, overlap) :]
