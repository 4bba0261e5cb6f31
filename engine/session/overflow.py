"""What to leave out when a conversation no longer fits the context: pure planning.

Whole turns go, never parts of a message, and the choice depends only on what was said and left out
before: the same history always loses the same turns, so that a trimmed conversation stays
append-only. Knows no tokens but their number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.config import Overflow

# Trimming goes this far below the limit, so that many turns follow before the next time.
TRIM_TO = 0.65
# The part of the context that trimming leaves to the reply.
REPLY_SHARE = 8


@dataclass(frozen=True, slots=True)
class MessageSize:
    """One message as planning sees it. is_pinned: its turn must stay."""

    role: str
    num_tokens: int
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class OverflowPlan:
    """Which messages stay, by index; what the others took.

    num_tokens: of the messages that stay; history_tokens: without the last one. dropped_tokens: of
    those that go now, not before. unread_tokens: of the history that stays, what follows the first
    new gap: it is read again unless it was read in this form before.
    """

    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    num_tokens: int
    history_tokens: int
    dropped_tokens: int
    unread_tokens: int


def limit_of(context_length: int, max_tokens: int | None = None) -> int:
    """Return how many tokens a prompt may have, so that there is room for a reply.

    max_tokens: of the reply, where it is known to be short.
    """
    room = context_length // REPLY_SHARE
    return context_length - (room if max_tokens is None else min(room, max_tokens))


def plan_overflow(
    policy: Overflow,
    messages: Sequence[MessageSize],
    limit_tokens: int,
    dropped: Collection[int] = (),
) -> OverflowPlan | None:
    """Plan what stays of a conversation within a limit; None where the policy cannot help.

    messages: from the first to the one to be answered, the reply's opening counted with the last.
    dropped: those left out before; without any, what earlier turns would have left out is found out
    turn by turn. Policies: ASK never drops. DROP_OLDEST and ROLLING_WINDOW drop the oldest turns.
    KEEP_ENDS keeps the first turn as well. All keep system messages, turns with a pinned message
    and the last turn, and trim to TRIM_TO of the limit each time it is exceeded.
    """
    turns = _turns(messages)
    last_turn = len(turns) - 1
    protected = {
        number for number, turn in enumerate(turns) if any(messages[i].is_pinned for i in turn)
    } | {last_turn}
    if policy is Overflow.KEEP_ENDS:
        protected.add(0)
    gone = set(dropped)
    for last in range(last_turn if gone else 0, len(turns)):
        # What answered a turn was not there yet when it was asked.
        said = messages if last == last_turn else messages[: turns[last][0] + 1]
        _trim(policy, said, turns[: last + 1], protected | {last}, gone, limit_tokens)
    plan = _plan(messages, gone, set(dropped))
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
    gone: set[int],
    limit_tokens: int,
) -> None:
    """Drop the oldest turns that may go, when the last one does not fit; extends ``gone``."""
    total = sum(m.num_tokens for i, m in enumerate(messages) if i not in gone)
    if policy is Overflow.ASK or total <= limit_tokens:
        return
    for number, turn in enumerate(turns):
        if total <= limit_tokens * TRIM_TO:
            return
        if number in protected:
            continue
        for index in turn:
            if index not in gone:
                gone.add(index)
                total -= messages[index].num_tokens


def _plan(messages: Sequence[MessageSize], gone: set[int], gone_before: set[int]) -> OverflowPlan:
    kept = tuple(index for index in range(len(messages)) if index not in gone)
    new = gone - gone_before
    first_gap = min(new, default=len(messages))
    sizes = [message.num_tokens for message in messages]
    last = len(messages) - 1
    return OverflowPlan(
        kept=kept,
        dropped=tuple(sorted(gone)),
        num_tokens=sum(sizes[index] for index in kept),
        history_tokens=sum(sizes[index] for index in kept if index < last),
        dropped_tokens=sum(sizes[index] for index in new),
        unread_tokens=sum(sizes[index] for index in kept if first_gap < index < last),
    )
