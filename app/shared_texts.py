"""Conversations' text between chats.db and the form a shared store holds it in.

What comes from there is read like an imported file: anything at all may be in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from app.conversation import Message, MessageStatus
from app.errors import ImportFormatError, NotFoundError
from app.export import FORMAT, VERSION, conversation_document, message_document
from app.importers import read_text
from app.store.chat_store import ChatStore
from app.store.merging import Whole
from app.store.shared.text import MergedText, OutgoingText, SharedText
from app.transcript import Transcript

# What says where this machine is, not what was said.
_OWN = ("leaf_id", "updated_at", "model")
_UNSETTLED = (MessageStatus.STREAMING, MessageStatus.ASKING)


class ChatTexts:
    """The conversations of one chats.db. on_merged is told whose messages changed.

    Raises: DatabaseError kinds, from every method.
    """

    def __init__(self, chats: ChatStore, on_merged: Callable[[str], None]) -> None:
        self._chats = chats
        self._on_merged = on_merged

    def ids(self) -> list[str]:
        """Return the conversations that are here."""
        return [row.id for row in self._chats.conversations(include_archived=True)]

    def is_here(self, conversation_id: str) -> bool:
        """Tell whether a conversation is here, and not deleted."""
        try:
            return not self._chats.conversation(conversation_id).is_deleted
        except NotFoundError:
            return False

    def outgoing(self, conversation_id: str) -> OutgoingText | None:
        """Return a conversation's text as it is sent; None where nothing was said yet."""
        return _outgoing(self._chats.to_share(conversation_id))

    def merge(self, conversation_id: str, text: SharedText) -> MergedText:
        """Add what another machine wrote to a conversation, which is made where it is missing.

        Raises: ImportFormatError when it makes no sense.
        """
        transcript = _transcript(text.document, text.messages)
        merged = self._chats.merge_transcript(conversation_id, transcript)
        if merged.has_changed:
            self._on_merged(conversation_id)
        before = None if merged.before is None else _outgoing(merged.before)
        return MergedText(before, _outgoing(merged.after))


def _outgoing(whole: Whole) -> OutgoingText | None:
    conversation, gone = whole.conversation, whole.deleted
    messages = _settled(whole.messages)
    if not messages:
        return None
    leaf_id = _settled_leaf(conversation.leaf_id, whole.messages, messages)
    document = conversation_document(conversation) | {"model": "", "leaf_id": leaf_id}
    parts = {message.id: _packed(message_document(message)) for message in messages}
    said = {key: value for key, value in document.items() if key not in _OWN}
    digest = hashlib.blake2b(_packed(said), digest_size=16)
    for key in (*sorted(parts), *sorted(gone)):
        digest.update(parts.get(key, key.encode()))
    return OutgoingText(
        conversation.id,
        conversation.title,
        _packed(document),
        parts,
        tuple(gone),
        digest.digest(),
    )


def _settled(messages: Sequence[Message]) -> list[Message]:
    """Leave out replies that are still growing, and whatever follows them."""
    left_out: set[str | None] = set()
    settled = []
    for message in messages:
        if message.status in _UNSETTLED or message.parent_id in left_out:
            left_out.add(message.id)
        else:
            settled.append(message)
    return settled


def _settled_leaf(
    leaf_id: str | None, messages: Sequence[Message], settled: Sequence[Message]
) -> str | None:
    """Return the last message above the leaf on screen that is sent."""
    parents = {message.id: message.parent_id for message in messages}
    sent = {message.id for message in settled}
    while leaf_id is not None and leaf_id not in sent:
        leaf_id = parents.get(leaf_id)
    return leaf_id


def _transcript(document: bytes, parts: Sequence[bytes]) -> Transcript:
    try:
        whole = json.loads(document)
        messages = [json.loads(part) for part in parts]
        # Versions of a message stand in the order in which they were written.
        whole["messages"] = sorted(messages, key=lambda one: str(one["created_at"]))
        text = json.dumps({"format": FORMAT, "version": VERSION, "conversations": [whole]})
        transcripts = read_text(text)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ImportFormatError("A shared conversation is damaged.", detail=repr(error)) from error
    if len(transcripts) != 1:
        raise ImportFormatError("A shared conversation is empty.")
    _require_texts(transcripts[0])
    return transcripts[0]


def _require_texts(transcript: Transcript) -> None:
    """Raise ImportFormatError where a value is not what the database can hold."""
    values: list[Any] = [transcript.title, transcript.system_prompt, transcript.folder]
    for message in transcript.messages:
        values += [message.id, message.content, message.reasoning]
    for value in values:
        try:
            value.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise ImportFormatError(
                "A shared conversation is damaged.", detail=repr(error)
            ) from error


def _packed(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")
