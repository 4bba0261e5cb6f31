"""Only rows near the viewport are widgets; the view follows and keeps its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QAbstractSlider, QApplication
from pytestqt.qtbot import QtBot

from app.conversation import MessageStatus, Role
from ui.chat.chat_pane import ChatPane
from ui.theme import load_theme

from .conftest import CONVERSATION, delta, message, turns

Settle = Callable[[], None]


def live(number: int = 40) -> list:
    return [
        *turns(number),
        message("own", Role.USER, "Go on"),
        message("live", Role.ASSISTANT, "", status=MessageStatus.STREAMING),
    ]


def is_at_end(pane: ChatPane) -> bool:
    bar = pane.view.verticalScrollBar()
    return bar.value() == bar.maximum()


def wheel(pane: ChatPane, notches: int) -> None:
    viewport = pane.view.viewport()
    place = QPointF(viewport.rect().center())
    event = QWheelEvent(
        place,
        viewport.mapToGlobal(place),
        QPoint(),
        QPoint(0, 120 * notches),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(viewport, event)


def test_long_conversation_has_few_widgets(pane: ChatPane, settle: Settle) -> None:
    pane.set_conversation(CONVERSATION, turns(1000), "")
    settle()

    assert 0 < pane.view.num_widgets < 60


def test_widgets_far_away_are_let_go(pane: ChatPane, settle: Settle) -> None:
    pane.set_conversation(CONVERSATION, turns(1000), "")
    bar = pane.view.verticalScrollBar()
    for share in (0.1, 0.9, 0.3, 0.5):
        bar.setSliderPosition(int(bar.maximum() * share))
        bar.triggerAction(QAbstractSlider.SliderAction.SliderPageStepSub)
        settle()

    assert pane.view.num_widgets < 60


def test_conversation_opens_at_its_end(pane: ChatPane, settle: Settle) -> None:
    pane.set_conversation(CONVERSATION, turns(200), "")
    settle()

    assert is_at_end(pane)
    assert pane.view.is_following


def test_view_follows_a_growing_reply(pane: ChatPane) -> None:
    pane.set_conversation(CONVERSATION, live(), "")

    for _ in range(30):
        pane.apply_delta(delta("live", "some more words and a line\n\n"))

    assert is_at_end(pane)


def test_one_notch_up_releases_the_view(pane: ChatPane) -> None:
    pane.set_conversation(CONVERSATION, live(), "")

    wheel(pane, 1)
    before = pane.view.verticalScrollBar().value()
    for _ in range(10):
        pane.apply_delta(delta("live", "another line\n\n"))

    assert not pane.view.is_following
    assert pane.view.verticalScrollBar().value() == before


@pytest.mark.parametrize("action", ["SliderPageStepSub", "SliderSingleStepSub", "SliderToMinimum"])
def test_every_way_up_releases_the_view(pane: ChatPane, action: str) -> None:
    pane.set_conversation(CONVERSATION, live(), "")

    pane.view.verticalScrollBar().triggerAction(QAbstractSlider.SliderAction[action])

    assert not pane.view.is_following


def test_page_up_key_in_a_message_scrolls_the_conversation(pane: ChatPane, qtbot: QtBot) -> None:
    pane.set_conversation(CONVERSATION, live(), "")
    widget = pane.view.widget_of("own")
    assert widget is not None
    text = widget.body.parts[0]
    text.setFocus()

    qtbot.keyClick(text, Qt.Key.Key_PageUp)

    assert not pane.view.is_following


def test_scrolling_back_to_the_end_follows_again(pane: ChatPane) -> None:
    pane.set_conversation(CONVERSATION, live(), "")
    wheel(pane, 3)

    wheel(pane, -20)

    assert pane.view.is_following


def test_jump_button_goes_to_the_end(pane: ChatPane) -> None:
    pane.set_conversation(CONVERSATION, live(), "")
    wheel(pane, 20)
    assert not pane.view.is_following

    pane.view.jump_to_latest()

    assert is_at_end(pane)
    assert pane.view.is_following


def test_what_is_read_stays_in_place_when_rows_above_get_their_height(
    pane: ChatPane, settle: Settle
) -> None:
    pane.set_conversation(CONVERSATION, turns(300, "word " * 400), "")
    settle()
    pane.view.show_message("m150")
    top = pane.view.row_span(150)[0]

    settle()

    assert pane.view.row_span(150)[0] == top


def test_a_reply_growing_out_of_sight_makes_no_widgets(pane: ChatPane, settle: Settle) -> None:
    pane.set_conversation(CONVERSATION, live(400), "")
    pane.view.show_message("m10")
    settle()

    pane.apply_delta(delta("live", "far away"))

    assert pane.view.widget_of("live") is None
    assert pane.messages.rows[-1].message.content == "far away"


def test_theme_and_zoom_keep_the_place(pane: ChatPane, settle: Settle) -> None:
    pane.set_conversation(CONVERSATION, turns(100), "")
    pane.view.show_message("m50")
    settle()

    pane.apply_theme(load_theme("dark"))
    pane.set_zoom(1.5)
    settle()

    top, bottom = pane.view.row_span(50)
    assert top < pane.view.viewport().height()
    assert bottom > -50


def test_sending_goes_to_the_end(pane: ChatPane) -> None:
    messages = live()
    pane.set_conversation(CONVERSATION, messages[:-2], "")
    wheel(pane, 30)

    pane.set_path(messages)

    assert is_at_end(pane)


def test_branch_switch_keeps_the_shared_rows(pane: ChatPane) -> None:
    pane.set_conversation(CONVERSATION, turns(6), "")
    shared = pane.view.widget_of("m3")
    assert shared is not None

    pane.set_path([*turns(5), message("other", Role.ASSISTANT, "Another answer")])

    assert pane.view.widget_of("m3") is shared
    assert pane.view.widget_of("m5") is None
    assert pane.view.widget_of("other") is not None
