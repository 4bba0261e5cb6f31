"""What an edit costs, from the counts of the replies and the length of the texts."""

from __future__ import annotations

import pytest

from app.conversation import Message, Readiness, ReadyTier, ReplyStats, Role
from engine.events import ReusedTokens, Timing, Usage
from ui.chat.chat_pane import ChatPane
from ui.chat.message_actions import Action
from ui.chat.price import Price, borders, price_of_reading, price_words

from .conftest import CONVERSATION, message


def reply(key: str, prompt: int, completion: int, *, reused: int = 0) -> Message:
    stats = ReplyStats(
        Usage(prompt, ReusedTokens(hot=reused), completion),
        Timing(0.0, 1000.0, 1000.0, 20.0),
    )
    return message(key, Role.ASSISTANT, "x" * 400, stats=stats)


PATH = [
    message("u1", Role.USER, "y" * 40),
    reply("a1", 100, 50),
    message("u2", Role.USER, "z" * 80),
    reply("a2", 190, 60, reused=150),
    message("u3", Role.USER, "w" * 80),
]


def test_borders_are_exact_where_replies_were_counted() -> None:
    edges = borders(PATH)
    assert edges.starts[:5] == (0.0, 100.0, 150.0, 190.0, 250.0)
    assert edges.starts[5] == pytest.approx(270.0)
    assert edges.exact == (True, True, True, True, True, False)


def test_borders_between_counted_places_follow_the_text() -> None:
    path = [message("u", Role.USER, "a" * 100), message("v", Role.ASSISTANT, "b" * 300), *PATH[1:2]]
    assert borders(path).starts == (0.0, 25.0, 100.0, 150.0)


def test_edit_of_a_ready_conversation_reads_the_message_only() -> None:
    ready = Readiness(ReadyTier.HOT, 270, 0, 0.0)
    price = price_of_reading(PATH, 2, 3, ready, bytes_per_token=1000)
    assert price == Price(40, True, 40 / 40, 120_000)
    assert price_words(price) == (
        "Reads 40 tokens again, 1.0 s\nA second branch takes about 117 KB"
    )


def test_what_is_not_ready_is_part_of_the_price() -> None:
    cold = Readiness(ReadyTier.NONE, 0, 270, 3.0)
    assert price_of_reading(PATH, 2, 3, cold).tokens == 190
    assert price_of_reading(PATH, 3, 3, cold).tokens == 190
    assert price_of_reading(PATH, 3, 3, None).tokens == 0


def test_guesses_say_about() -> None:
    price = price_of_reading(PATH, 4, 5, None)
    assert price_words(price) == "Reads about 20 tokens again, 0.5 s"
    assert price_words(Price(0, True)) == "Nothing has to be read again"


def test_pane_prices_what_costs_reading(pane: ChatPane) -> None:
    pane.set_conversation(CONVERSATION, PATH, "")
    prices = pane.prices("u2")
    assert prices[Action.EDIT].startswith("Reads 40 tokens again")
    assert prices[Action.DELETE] == "Nothing has to be read again"
    assert pane.prices("gone") == {}
