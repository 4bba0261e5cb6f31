from __future__ import annotations

import random

import pytest

from engine.config import Overflow
from engine.session.overflow import MessageSize, limit_of, plan_overflow

SYSTEM = MessageSize("system", 100)


def talk(num_turns, *, user=40, reply=60, system=True):
    """A conversation that ends in a user message."""
    turns = [MessageSize("user", user), MessageSize("assistant", reply)] * num_turns
    return ([SYSTEM] if system else []) + turns[:-1]


def test_what_fits_stays_whole():
    messages = talk(5)
    for policy in Overflow:
        plan = plan_overflow(policy, messages, 10_000)
        assert plan.kept == tuple(range(len(messages)))
        assert plan.dropped == ()
        assert plan.unread_tokens == 0


def test_asking_drops_nothing_and_says_that_it_does_not_fit():
    assert plan_overflow(Overflow.ASK, talk(20), 1000) is None


def test_the_oldest_turns_go_at_once_down_to_two_thirds():
    messages = talk(10)  # 100 + 10 * 100 - 60
    plan = plan_overflow(Overflow.DROP_OLDEST, messages, 1000)
    assert plan.dropped == tuple(range(1, 9))
    assert plan.num_tokens == 100 + 5 * 100 + 40 <= 650
    assert plan.dropped_tokens == 400
    assert plan.unread_tokens == 500
    assert plan.history_tokens == 600


def test_keeping_both_ends_keeps_the_first_turn():
    plan = plan_overflow(Overflow.KEEP_ENDS, talk(10), 1000)
    assert plan.dropped == tuple(range(3, 11))
    assert plan.kept[:3] == (0, 1, 2)


def test_pinned_messages_stay():
    messages = talk(10)
    messages[2] = MessageSize("assistant", 60, is_pinned=True)
    plan = plan_overflow(Overflow.DROP_OLDEST, messages, 1000)
    assert {1, 2} <= set(plan.kept), "its question stays with it"
    assert {3, 4} <= set(plan.dropped)


def test_a_last_message_that_is_too_long_by_itself_cannot_be_helped():
    messages = [*talk(3), MessageSize("assistant", 5), MessageSize("user", 2000)]
    assert plan_overflow(Overflow.DROP_OLDEST, messages, 1000) is None


def test_a_conversation_without_system_prompt_can_lose_its_first_message():
    plan = plan_overflow(Overflow.DROP_OLDEST, talk(12, system=False), 1000)
    assert plan.dropped[0] == 0


@pytest.mark.parametrize("policy", [Overflow.DROP_OLDEST, Overflow.KEEP_ENDS])
@pytest.mark.parametrize("seed", range(5))
def test_a_trimmed_conversation_only_grows_until_the_next_trimming(policy, seed):
    rng = random.Random(seed)
    messages = [SYSTEM, MessageSize("user", 30)]
    before = plan_overflow(policy, messages, 1000)
    num_trimmings = 0
    for _ in range(60):
        messages.append(MessageSize("assistant", rng.randrange(1, 90)))
        messages.append(MessageSize("user", rng.randrange(1, 90)))
        plan = plan_overflow(policy, messages, 1000)
        assert plan == plan_overflow(policy, messages, 1000, ()), "the same each time"
        told = plan_overflow(policy, messages, 1000, before.dropped)
        assert told.dropped == plan.dropped, "found out or remembered, it is the same"
        assert plan.num_tokens <= 1000
        assert set(before.dropped) <= set(plan.dropped)
        num_trimmings += plan.dropped != before.dropped
        before = plan
    assert 3 <= num_trimmings <= 20


def test_what_was_left_out_before_stays_out_and_counts_no_more():
    messages = talk(10)
    plan = plan_overflow(Overflow.DROP_OLDEST, messages, 2000, dropped=(1, 2))
    assert plan.dropped == (1, 2)
    assert plan.num_tokens == 100 + 8 * 100 + 40
    assert plan.dropped_tokens == plan.unread_tokens == 0


def test_the_limit_leaves_an_eighth_to_the_reply_or_what_it_may_take():
    assert limit_of(8192) == 7168
    assert limit_of(8192, 64) == 8128
