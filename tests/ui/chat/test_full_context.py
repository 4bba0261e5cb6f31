"""A full context in the chat: the question, the marker, pinned messages, and what they say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from app.conversation import ContextChoice, ContextQuestion, LeftOut, MessageStatus, Role
from app.events import ReplyFinished, ReplyTrimmed
from tests.ui.chat.conftest import turns
from tests.ui.fakes import STATS
from ui.chat.message_actions import Action, actions_for, message_menu
from ui.chat.message_model import MessageModel
from ui.chat.question_card import CANCEL, START_OVER, QuestionCard

CHOICES = (
    ContextChoice("drop_oldest", 12, 2840, 4100, 20.5),
    ContextChoice("keep_ends", 10, 2610, 4330, 21.6),
    ContextChoice("rolling_window", 12, 2840, 0, 0.0),
)
QUESTION = ContextQuestion(7413, 7168, 8192, CHOICES)


def with_left_out(path, *ids):
    out = LeftOut("drop_oldest", ids, 2840, 8192)
    return [*path[:-1], replace(path[-1], left_out=out)]


def asking(path, question=QUESTION):
    reply = replace(
        path[-1], content="", stats=None, status=MessageStatus.ASKING, question=question
    )
    return [*path[:-1], reply]


@pytest.fixture
def path():
    return [replace(row, stats=STATS if row.role is Role.ASSISTANT else None) for row in turns(6)]


def card_of(pane, message_id) -> QuestionCard:
    card = pane.view.widget_of(message_id).section(QuestionCard)
    assert isinstance(card, QuestionCard)
    return card


def test_rows_tell_where_the_context_begins(qapp, path):
    model = MessageModel()
    model.set_path(with_left_out(path, path[0].id, path[1].id))
    assert [row.is_gone for row in model.rows] == [True, True, False, False, False, False]
    assert [row.num_gone_before for row in model.rows] == [0, 0, 2, 0, 0, 0]
    model.set_path(with_left_out(path, path[2].id, path[3].id))
    assert [row.num_gone_before for row in model.rows] == [0, 0, 0, 0, 2, 0]
    model.set_path(with_left_out(path, path[0].id, path[1].id)[:4])
    assert not any(row.is_gone for row in model.rows), "an earlier branch saw everything"


def test_the_marker_appears_when_the_reply_begins(pane, path):
    pane.set_path([*path[:-1], replace(path[-1], content="", status=MessageStatus.STREAMING)])
    out = LeftOut("drop_oldest", (path[0].id, path[1].id), 40, 512)
    pane.apply_trimmed(ReplyTrimmed("c", path[-1].id, out))
    marker = pane.view.widget_of(path[2].id).marker
    assert "no longer in the model's context" in marker.text()
    assert "Drop the oldest turns" in marker.toolTip()
    assert marker.geometry().bottom() < pane.view.widget_of(path[2].id).anchor_rect().top()
    assert pane.view.widget_of(path[0].id).marker is None
    finished = replace(path[-1], left_out=replace(out, ids=()))
    pane.apply_finished(ReplyFinished(finished))
    assert pane.view.widget_of(path[2].id).marker is None


def test_prices_count_only_what_the_model_sees(pane, path):
    pane.set_path(with_left_out(path, path[0].id, path[1].id))
    seen = pane.messages.in_context()
    assert [message.id for message in seen] == [message.id for message in path[2:]]
    assert seen[1].stats is None, "its counts are of another context"
    assert pane.prices(path[0].id) == {}


def test_a_question_offers_each_policy_with_its_price(pane, path, qtbot):
    pane.set_path(asking(path))
    card = card_of(pane, path[-1].id)
    words = card.text()
    assert "7,413" in words
    assert "2,840 tokens left out" in words
    assert "4,100 tokens are read again, about 20 s" in words
    assert "nothing is read again" in words
    with qtbot.waitSignal(pane.question_answered) as caught:
        qtbot.mouseClick(card.choices[2], Qt.MouseButton.LeftButton)
    assert caught.args == [path[-1].id, "rolling_window", False]
    card.always.setChecked(True)
    with qtbot.waitSignal(pane.question_answered) as caught:
        card.choices[0].click()
    assert caught.args == [path[-1].id, "drop_oldest", True]
    for button, answer in ((card.start_over, START_OVER), (card.cancel, CANCEL)):
        with qtbot.waitSignal(pane.question_answered) as caught:
            button.click()
        assert caught.args == [path[-1].id, answer, False]


def test_what_cannot_be_had_is_shown_with_its_reason(pane, path):
    refused = (*CHOICES[:2], replace(CHOICES[2], refusal="recurrent"))
    pane.set_path(asking(path, replace(QUESTION, choices=refused)))
    button = card_of(pane, path[-1].id).choices[2]
    assert not button.isEnabled()
    assert button.accessibleDescription() == "This model's memory cannot be moved."


def test_an_asking_reply_offers_nothing_else(qapp, path):
    model = MessageModel()
    model.set_path(asking(path))
    assert actions_for(model.rows[-1]) == ()


def test_pinning_is_in_the_menu_and_seen_under_the_message(pane, path, qtbot):
    pinned = [replace(path[0], is_pinned=True), *path[1:]]
    pane.set_path(pinned)
    rows = pane.messages.rows
    for row, wanted, other in (
        (rows[0], Action.UNPIN, Action.PIN),
        (rows[1], Action.PIN, Action.UNPIN),
    ):
        menu = message_menu(pane.look, row, pane, selected="")
        offered = [entry.data() for entry in menu.actions()]
        assert wanted in offered
        assert other not in offered
    with qtbot.waitSignal(pane.pin_requested) as caught:
        pane._act(Action.PIN.value, rows[1].message.id)
    assert caught.args == [rows[1].message.id, True]
