"""A conversation that no longer fits: the question to the user, and what is done about it."""

from __future__ import annotations

from collections.abc import Callable

from app.conversation import (
    ContextChoice,
    ContextQuestion,
    Conversation,
    LeftOut,
    Message,
    MessageStatus,
    Role,
)
from app.prompting import Branch, ReplyOptions
from app.readiness import seconds_to_read
from app.store.chat_store import ChatStore
from engine.config import Overflow
from engine.events import ContextCut, OverflowQuestion
from engine.metrics import Rates
from engine.session.overflow import limit_of


class FullContext:
    """Answers to the question that a reply's row asks.

    start: goes on with a reply. send: writes into a conversation. changed: tells that one changed.
    """

    def __init__(
        self,
        store: ChatStore,
        *,
        start: Callable[[Message, ReplyOptions], None],
        send: Callable[[str, str], object],
        changed: Callable[[str], None],
    ) -> None:
        self._store = store
        self._start = start
        self._send = send
        self._changed = changed

    def choose(self, reply_id: str, policy: Overflow) -> Message:
        """Go on with a reply, leaving out what a policy says; return its row."""
        reply = self._store.update_message(reply_id, status=MessageStatus.STREAMING)
        self._start(reply, ReplyOptions(overflow=policy))
        self._changed(reply.conversation_id)
        return reply

    def cancel(self, reply_id: str) -> str:
        """Take the question back, and with it what led to it; return the text to write on with.

        That is "" where nothing was written: a reply was to be continued or made anew.
        """
        reply = self._store.message(reply_id)
        text = ""
        if reply.content:
            self._store.update_message(reply_id, status=MessageStatus.LENGTH)
        elif reply.num_versions > 1 or reply.parent_id is None:
            self._store.delete_message(reply_id)
        else:
            text = self._store.message(reply.parent_id).content
            self._store.delete_message(reply.parent_id)
        self._changed(reply.conversation_id)
        return text

    def start_over(self, reply_id: str) -> Conversation:
        """Ask the same in a new conversation with the same instructions; return that."""
        reply = self._store.message(reply_id)
        assert reply.parent_id is not None
        asked = self._store.message(reply.parent_id)
        assert asked.role is Role.USER
        old = self._store.conversation(reply.conversation_id)
        new = self._store.create_conversation(
            system_prompt=old.system_prompt, sampling=old.sampling, folder=old.folder
        )
        self.cancel(reply_id)
        self._send(new.id, asked.content)
        return self._store.conversation(new.id)


def left_out(cut: ContextCut, branch: Branch, context_length: int) -> LeftOut:
    """Return what the row of a reply keeps of a cut."""
    return LeftOut(
        policy=cut.policy.value,
        ids=branch.rows(cut.dropped),
        num_tokens=cut.dropped_tokens,
        context_length=context_length,
        refusal=cut.refusal.value if cut.refusal else "",
    )


def question_for(question: OverflowQuestion, branch: Branch, rates: Rates) -> ContextQuestion:
    """Return the engine's question in numbers that a person understands."""
    choices = [
        ContextChoice(
            policy=option.policy.value,
            num_messages=len(branch.rows(option.dropped)),
            num_tokens=option.dropped_tokens,
            reread_tokens=option.reread_tokens,
            seconds=seconds_to_read(option.reread_tokens, rates),
            refusal=option.refusal.value if option.refusal else "",
        )
        for option in question.options
    ]
    return ContextQuestion(
        question.prompt_tokens, question.limit_tokens, question.context_length, tuple(choices)
    )


def tokens_until_full(num_tokens: int, context_length: int) -> int:
    """Return how many tokens more there may be before messages have to be left out."""
    return max(0, limit_of(context_length) - num_tokens)
