"""The terminal when a conversation no longer fits: it asks, or says how to choose, and tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.paths import app_paths
from app.store.chat_store import ChatStore
from engine.config import Overflow
from engine.events import ContextCut
from tests.app.test_cli import engine, reprise
from tests.app.test_full_context import QUESTION as TWO_MESSAGES

__all__ = ["engine"]

QUESTION = replace(
    TWO_MESSAGES,
    options=tuple(replace(option, dropped=(0,)) for option in TWO_MESSAGES.options),
)


@pytest.fixture
def answers(monkeypatch):
    """What is typed, line by line."""
    lines: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt: lines.pop(0))
    return lines


def messages() -> list[str]:
    store = ChatStore(app_paths().chats)
    (conversation,) = store.conversations()
    contents = [message.content for message in store.path(conversation.id)]
    store.close()
    return contents


def test_ask_takes_the_message_back_and_names_the_choices(engine, capsys):
    engine.question = QUESTION
    assert reprise("ask", "Hello", "--model", "model.gguf") == 1
    said = capsys.readouterr().err
    assert "needs 120 tokens" in said
    assert "--overflow drop_oldest: drop the oldest turns: 1 messages, 40 tokens;" in said
    assert "not possible: this model's state cannot be moved" in said
    assert messages() == []


def test_ask_with_a_choice_does_not_ask_and_tells_what_it_did(engine, capsys):
    engine.question, engine.cut = QUESTION, ContextCut(Overflow.DROP_OLDEST, (0,), 40)
    asked = ("ask", "Hello", "--model", "model.gguf", "--overflow", "drop_oldest")
    assert reprise(*asked) == 0
    assert engine.asked[-1].overflow is Overflow.DROP_OLDEST
    assert "[1 messages are no longer in the model's context, 40 tokens" in capsys.readouterr().err


def test_chat_lets_one_choose_or_take_it_back(engine, answers, capsys):
    engine.question, engine.cut = QUESTION, ContextCut(Overflow.DROP_OLDEST, (0,), 40)
    answers += ["Hello", "", "Again", "1", "/quit"]
    assert reprise("chat", "--model", "model.gguf") == 0
    said = capsys.readouterr()
    assert said.out.count("1  drop the oldest turns") == 2
    assert "no longer in the model's context" in said.err
    assert messages() == ["Again", "one two three"]
