"""What of a conversation the model is shown: branches as messages, and which of them are left out.

A reply's row remembers what its context left out, so that the next one goes on from there, after a
restart and on another branch as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from app.conversation import LeftOut, Message, MessageStatus, Role
from app.settings_file import SettingsStore
from app.store.chat_store import ChatStore
from app.worker import EngineWorker
from engine.config import ChatMessage, GenerateRequest, Overflow, SamplingParams

_UNANSWERED = (MessageStatus.STREAMING, MessageStatus.ASKING)


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What one reply does differently; None follows the conversation and the settings."""

    sampling: SamplingParams | None = None
    max_tokens: int | None = None
    overflow: Overflow | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as the model is shown it: system prompt first, empty replies left out.

    ids: of the rows that each message stands for; () for the system prompt. pinned: by index.
    """

    messages: tuple[ChatMessage, ...]
    ids: tuple[tuple[str, ...], ...]
    pinned: tuple[int, ...]

    def indices(self, ids: Collection[str]) -> tuple[int, ...]:
        """Return the messages that stand for any of some rows."""
        return tuple(at for at, own in enumerate(self.ids) if any(key in ids for key in own))

    def rows(self, indices: Collection[int]) -> tuple[str, ...]:
        """Return the rows that some messages stand for."""
        return tuple(key for at in indices for key in self.ids[at])

    def without(self, indices: Collection[int]) -> tuple[ChatMessage, ...]:
        """Return the other messages."""
        return tuple(message for at, message in enumerate(self.messages) if at not in indices)


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """What the engine is asked, and the rows behind it."""

    request: GenerateRequest
    branch: Branch


class Prompting:
    """Turns rows into requests. Usable from several threads."""

    def __init__(self, store: ChatStore, worker: EngineWorker, settings: SettingsStore) -> None:
        self._store = store
        self._worker = worker
        self._settings = settings

    def messages(self, conversation_id: str, leaf_id: str | None = None) -> tuple[ChatMessage, ...]:
        """Return what the model sees of a branch now."""
        path = self._store.path(conversation_id, leaf_id)
        branch = self._branch(conversation_id, path)
        return branch.without(branch.indices(self._still_out(left_out_of(path))))

    def request(self, reply: Message, options: ReplyOptions) -> ReplyRequest:
        """Return what the engine is asked for a reply whose row is there."""
        conversation = self._store.conversation(reply.conversation_id)
        settings = self._settings.value
        leaf = reply.id if reply.content else reply.parent_id
        path = self._store.path(reply.conversation_id, leaf)
        branch = self._branch(reply.conversation_id, path)
        before = self._still_out(self._left_out_before(reply, path))
        request = GenerateRequest(
            reply.conversation_id,
            branch.messages,
            sampling=options.sampling or conversation.sampling or settings.sampling,
            max_tokens=options.max_tokens or settings.max_tokens,
            overflow=options.overflow or Overflow(settings.overflow),
            pinned=branch.pinned,
            dropped=branch.indices(before),
        )
        return ReplyRequest(request, branch)

    def _branch(self, conversation_id: str, path: Sequence[Message]) -> Branch:
        conversation = self._store.conversation(conversation_id)
        system = conversation.system_prompt or self._settings.value.system_prompt
        return branch_of(path, system)

    def _left_out_before(self, reply: Message, path: Sequence[Message]) -> LeftOut | None:
        """Return what was left out of this reply, of another version of it, or before it."""
        if reply.content:
            return left_out_of(path)
        versions = self._store.siblings(reply.id)
        answered = [version for version in versions if _is_answered(version)]
        return left_out_of(answered) if answered else left_out_of(path)

    def _still_out(self, before: LeftOut | None) -> tuple[str, ...]:
        """Return the rows that stay out; none where a larger context may have room for all."""
        if before is None:
            return ()
        model = self._worker.model
        is_larger = model is not None and model.context_length > before.context_length
        return () if is_larger else before.ids


def branch_of(path: Sequence[Message], system_prompt: str) -> Branch:
    """Return a path as messages; those of one author in a row become one.

    Many templates refuse two user messages in a row, which a failed reply leaves behind.
    """
    groups = list(_groups(path))
    system = [ChatMessage("system", system_prompt)] if system_prompt else []
    messages = [
        ChatMessage(group[0].role.value, "\n\n".join(row.content for row in group if row.content))
        for group in groups
    ]
    ids = [tuple(row.id for row in group) for group in groups]
    pinned = [at for at, group in enumerate(groups) if any(row.is_pinned for row in group)]
    return Branch(
        (*system, *messages),
        (*(() for _ in system), *ids),
        tuple(at + len(system) for at in pinned),
    )


def left_out_of(path: Sequence[Message]) -> LeftOut | None:
    """Return what was left out of the context that the end of a path was written in."""
    for message in reversed(path):
        if _is_answered(message):
            return message.left_out
    return None


def _is_answered(message: Message) -> bool:
    is_reply = message.role is Role.ASSISTANT and message.status not in _UNANSWERED
    return is_reply and bool(message.content or message.reasoning)


def _groups(path: Sequence[Message]) -> Iterator[list[Message]]:
    """Cut a path into what the model sees as one message each; empty rows go with the one before.

    The first row of a group has text.
    """
    group: list[Message] = []
    for message in path:
        is_same_user = bool(group) and group[0].role is message.role is Role.USER
        if group and (not message.content or is_same_user):
            group.append(message)
        elif message.content:
            if group:
                yield group
            group = [message]
    if group:
        yield group
