"""Rows of the conversation on screen: what a piece of a reply adds to them."""

from __future__ import annotations

import dataclasses

from app.conversation import MessageStatus, Role
from ui.chat.message_model import MessageModel

from .conftest import delta, message


def model_with_reply(content: str) -> MessageModel:
    model = MessageModel()
    reply = message("r", Role.ASSISTANT, content)
    model.set_path([dataclasses.replace(reply, status=MessageStatus.STREAMING)])
    return model


def test_a_piece_is_appended_once_although_the_row_was_read_meanwhile() -> None:
    model = model_with_reply("one two")
    for text, offset in (("two", 4), (" three", 7)):
        model.apply_delta(dataclasses.replace(delta("r", text), offset=offset))
    assert model.rows[0].message.content == "one two three"


def test_a_piece_that_is_partly_known_adds_the_rest() -> None:
    model = model_with_reply("one t")
    model.apply_delta(dataclasses.replace(delta("r", "two"), offset=4))
    assert model.rows[0].message.content == "one two"
