"""What to leave out when a conversation no longer fits the context: pure planning.

Whole turns go, never parts of a message, and the choice depends only on what was said before: the
same history always loses the same turns, so that a trimmed conversation stays append-only.
Knows no tokens but their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import Overflow

# Trimming goes this far below the limit, so that many turns follow before the next time.
TRIM_TO = 0.65
# The part of the context that trimming leaves to the reply.
REPLY_SHARE = 8


@dataclass(frozen=True, slots=True)
class MessageSize:
    """One message as planning sees it. is_pinned: it must stay."""

    role: str
    num_tokens: int
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class OverflowPlan:
    """Which messages stay, by index; what the others took.

    num_tokens: of the messages that stay. unread_tokens: of those, what follows the first gap and
    is read again unless it was read in this form before.
    """

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    num_tokens: int
    dropped_tokens: int
    unread_tokens: int


def limit_of(context_length: int) -> int:
    """Return how many tokens a prompt may have, so that there is room for a reply."""
    return context_length - context_length // REPLY_SHARE


def plan_overflow(
    policy: Overflow, messages: Sequence[MessageSize], limit_tokens: int
) -> OverflowPlan | None:
    """Plan what stays of a conversation within a limit; None where the policy cannot help.

    messages: from the first to the one to be answered, the reply's opening counted with the last.
    Policies: ASK never drops. DROP_OLDEST drops the oldest turns. KEEP_ENDS keeps the first turn as
    well. Both keep system messages, pinned ones and the last turn, and trim to TRIM_TO of the limit
    each time it is exceeded.
    """
    turns = _turns(messages)
    protected = {len(turns) - 1}
    if policy is Overflow.KEEP_ENDS:
        protected.add(0)
    dropped: set[int] = set()
    for last in range(len(turns)):
        _trim(policy, messages, turns[: last + 1], protected | {last}, dropped, limit_tokens)
    plan = _plan(messages, dropped)
    return plan if plan.num_tokens <= limit_tokens else None


def _turns(messages: Sequence[MessageSize]) -> list[list[int]]:
    """Group indices: a user message and what answers it; system messages belong to no turn."""
    turns: list[list[int]] = []
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if message.role == "user" or not turns:
            turns.append([])
        turns[-1].append(index)
    return turns


def _trim(
    policy: Overflow,
    messages: Sequence[MessageSize],
    turns: Sequence[Sequence[int]],
    protected: set[int],
    dropped: set[int],
    limit_tokens: int,
) -> None:
    """Drop the oldest turns that may go, when the last one does not fit; extends ``dropped``."""
    said = turns[-1][-1] + 1
    total = sum(m.num_tokens for i, m in enumerate(messages[:said]) if i not in dropped)
    if policy is Overflow.ASK or total <= limit_tokens:
        return
    for number, turn in enumerate(turns):
        if total <= limit_tokens * TRIM_TO:
            return
        if number in protected:
            continue
        for index in turn:
            if not messages[index].is_pinned and index not in dropped:
                dropped.add(index)
                total -= messages[index].num_tokens


def _plan(messages: Sequence[MessageSize], dropped: set[int]) -> OverflowPlan:
    kept = tuple(index for index in range(len(messages)) if index not in dropped)
    first_gap = min(dropped, default=len(messages))
    sizes = [message.num_tokens for message in messages]
    return OverflowPlan(
        kept=kept,
        dropped=tuple(sorted(dropped)),
        num_tokens=sum(sizes[index] for index in kept),
        dropped_tokens=sum(sizes[index] for index in dropped),
        unread_tokens=sum(sizes[index] for index in kept if index > first_gap),
    )
