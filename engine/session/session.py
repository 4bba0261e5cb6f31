"""The token log of one branch: what was really evaluated, and where messages lie in it.

Knows neither tensors nor templates.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from engine.config import ChatMessage
from engine.errors import SnapshotError
from engine.memory.interface import SequenceId

LOG_VERSION = 1
_HEADER_LENGTH = struct.Struct("<I")


def message_digest(message: ChatMessage) -> str:
    """Return a short stable name for a role and text; outer white space does not count."""
    text = f"{message.role}\0{message.content.strip()}"
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class MessageSpan:
    """Tokens start..end of the log belong to one message.

    is_open: the message's closing text (end-of-turn and what follows) is not in the log yet. True
    for generated replies: the template supplies it with the next message.
    """

    digest: str
    start: int
    end: int
    is_open: bool


class Session:
    """An append-only log of token ids with message spans, and the sequence that holds its state.

    sequence is None while the state is not resident. num_stored: tokens whose state the cold store
    holds, as far as this session knows. is_resting: its memory was made small since its last use.
    begun, turn: while a reply grows here, when it began and last had its turn; counted, not timed.
    """

    def __init__(self, conversation_id: str, branch: str) -> None:
        self.conversation_id = conversation_id
        self.branch = branch
        self.token_ids: list[int] = []
        self.spans: list[MessageSpan] = []
        self.sequence: SequenceId | None = None
        self.num_stored = 0
        self.is_resting = False
        self.begun: int | None = None
        self.turn = 0
        self.last_used = time.monotonic()

    @property
    def is_growing(self) -> bool:
        """Tell whether a reply is being generated here: its log must not be cut."""
        return self.begun is not None

    def num_matching(self, messages: Sequence[ChatMessage]) -> int:
        """Return how many leading messages stand in the log unchanged."""
        count = 0
        for span, message in zip(self.spans, messages, strict=False):
            if span.digest != message_digest(message):
                break
            count += 1
        return count

    def end_of(self, num_messages: int) -> int:
        """Return the log position behind the first num_messages messages."""
        return self.spans[num_messages - 1].end if num_messages else 0

    def is_open_after(self, num_messages: int) -> bool:
        """Tell whether the message before that position still lacks its closing text."""
        return num_messages > 0 and self.spans[num_messages - 1].is_open

    def is_merged(self, num_messages: int) -> bool:
        """Tell whether there is no border there: the template renders two messages as one."""
        span = self.spans[num_messages - 1]
        return span.start == span.end

    def cut(self, num_messages: int) -> None:
        """Forget everything behind the first num_messages messages."""
        del self.token_ids[self.end_of(num_messages) :]
        del self.spans[num_messages:]
        self.num_stored = min(self.num_stored, len(self.token_ids))

    def append(self, token_ids: Sequence[int]) -> None:
        """Append evaluated, or about to be evaluated, tokens."""
        self.token_ids.extend(token_ids)

    def close_span(self, digest: str, start: int, *, is_open: bool) -> None:
        """Make a message of everything from start to the end of the log."""
        self.spans.append(MessageSpan(digest, start, len(self.token_ids), is_open))

    def touch(self) -> None:
        """Note that the session was used now."""
        self.last_used = time.monotonic()
        self.is_resting = False

    def copy_as(self, branch: str, num_messages: int) -> Session:
        """Return a new session that starts with the first num_messages messages of this one."""
        copy = Session(self.conversation_id, branch)
        copy.token_ids = self.token_ids[: self.end_of(num_messages)]
        copy.spans = self.spans[:num_messages]
        copy.num_stored = min(self.num_stored, len(copy.token_ids))
        return copy

    def copy_whole(self, branch: str) -> Session:
        """Return a new session with the same log, what belongs to no message yet included."""
        copy = self.copy_as(branch, len(self.spans))
        copy.append(self.token_ids[len(copy.token_ids) :])
        return copy

    def to_log(self) -> bytes:
        """Return the record stored with a snapshot: JSON header, then int32 little-endian ids."""
        spans = [[s.digest, s.start, s.end, s.is_open] for s in self.spans]
        header = json.dumps({"version": LOG_VERSION, "spans": spans}).encode()
        ids = struct.pack(f"<{len(self.token_ids)}i", *self.token_ids)
        return _HEADER_LENGTH.pack(len(header)) + header + ids

    @classmethod
    def from_log(cls, conversation_id: str, branch: str, log: bytes) -> Session:
        """Read a record written by ``to_log``.

        Raises: SnapshotError when it is damaged or of another version.
        """
        session = cls(conversation_id, branch)
        try:
            header, ids = _split_log(log)
            spans = [MessageSpan(str(d), int(a), int(b), bool(o)) for d, a, b, o in header["spans"]]
        except (struct.error, ValueError, KeyError, TypeError) as error:
            raise SnapshotError(
                "A stored conversation log is damaged.", detail=str(error)
            ) from error
        session.token_ids, session.spans = ids, spans
        session._check()
        return session

    def _check(self) -> None:
        position = 0
        for span in self.spans:
            if not position <= span.start <= span.end <= len(self.token_ids):
                raise SnapshotError("A stored conversation log is damaged.", detail="span order")
            position = span.end


def _split_log(log: bytes) -> tuple[dict[str, Any], list[int]]:
    (length,) = _HEADER_LENGTH.unpack_from(log)
    start = _HEADER_LENGTH.size
    header = json.loads(log[start : start + length])
    if header["version"] != LOG_VERSION:
        raise ValueError(f"log version {header['version']}")
    body = log[start + length :]
    return header, list(struct.unpack(f"<{len(body) // 4}i", body))
