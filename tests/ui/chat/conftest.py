"""A chat pane on screen, and messages to put on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pytestqt.qtbot import QtBot

from app.conversation import Conversation, Message, Role
from app.events import ModelInfo, ReplyDelta
from engine.events import Channel
from ui.chat.chat_pane import ChatPane
from ui.chat.code_text import CodeText

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONVERSATION = Conversation("c", "Title", NOW, NOW)
MODEL = ModelInfo(
    path="/m.gguf",
    name="Tiny",
    architecture="llama",
    size_bytes=1,
    num_parameters=1,
    quantisation="Q4_1",
    context_length=8192,
    trained_context_length=8192,
    has_chat_template=True,
    kv_codec="f16",
    kv_bytes_per_token=(),
    block_size=32,
    compute="fake",
    num_threads=1,
    load_ms=1.0,
)


def message(key: str, role: Role, content: str, **fields: object) -> Message:
    return Message(key, "c", None, role, content, NOW, **fields)  # type: ignore[arg-type]


def turns(number: int, reply: str = "A reply.\n\nWith two paragraphs.") -> list[Message]:
    kinds = (Role.USER, Role.ASSISTANT)
    return [message(f"m{i}", kinds[i % 2], reply if i % 2 else f"Q {i}") for i in range(number)]


def delta(key: str, text: str, channel: Channel = Channel.CONTENT) -> ReplyDelta:
    return ReplyDelta("c", key, text, channel, 20.0)


@pytest.fixture
def pane(qtbot: QtBot) -> ChatPane:
    """A pane on screen with a model and an empty conversation."""
    result = ChatPane()
    qtbot.addWidget(result)
    result.resize(900, 700)
    result.show()
    result.set_model(MODEL)
    result.set_conversation(CONVERSATION, [], "")
    return result


@pytest.fixture
def settle(qtbot: QtBot, pane: ChatPane) -> Callable[[], None]:
    """Let idle work run out."""

    def is_settled() -> bool:
        codes = pane.view.findChildren(CodeText)
        return pane.view.is_settled and all(code.is_settled for code in codes)

    def wait() -> None:
        qtbot.wait(1)
        qtbot.waitUntil(is_settled)

    return wait
