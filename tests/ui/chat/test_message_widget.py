"""What a message shows: streamed text, numbers, versions, how it ended, and editing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QTextDocument
from PySide6.QtWidgets import QPushButton, QTextEdit
from pytestqt.qtbot import QtBot

from app.conversation import MessageStatus, ReplyStats, Role
from app.events import ReplyFinished, ReplyProgress, ReplyQueued
from engine.events import (
    Channel,
    MissCause,
    MissReason,
    ReusedTokens,
    Timing,
    Usage,
)
from ui.chat.chat_pane import ChatPane
from ui.chat.code_block import CodeBlock
from ui.chat.message_actions import Action
from ui.chat.reasoning import ReasoningSection
from ui.chat.reply_footer import ReplyFooter
from ui.chat.rich_text import open_link
from ui.chat.status_lines import StatusChip, WaitingLine
from ui.chat.why_popover import WhyPopover

from .conftest import CONVERSATION, delta, message
from .test_markdown import RICH

STATS = ReplyStats(
    Usage(3953, ReusedTokens(hot=3912), 212),
    Timing(restore_ms=1, prefill_ms=60, first_token_ms=412, decode_tokens_per_second=23.4),
)
LOW_REUSE = ReplyStats(
    Usage(3953, ReusedTokens(hot=512), 212),
    Timing(restore_ms=1, prefill_ms=60, first_token_ms=8412, decode_tokens_per_second=9.4),
    MissReason(MissCause.HISTORY_CHANGED, 512, "You are helpful", "You are terse"),
)


def show_reply(pane: ChatPane, content: str = "", **fields: object) -> None:
    question = message("q", Role.USER, "Question")
    pane.set_conversation(
        CONVERSATION, [question, message("a", Role.ASSISTANT, content, **fields)], ""
    )


def section(pane: ChatPane, kind: type, key: str = "a") -> object:
    widget = pane.view.widget_of(key)
    assert widget is not None
    return widget.section(kind)


def looks(pane: ChatPane) -> list[list[tuple]]:
    """Every text block of the reply: words, margins and formats."""
    widget = pane.view.widget_of("a")
    assert widget is not None
    return [blocks(text.document()) for text in widget.body.findChildren(QTextEdit)]


def blocks(document: QTextDocument) -> list[tuple]:
    result, block = [], document.begin()
    while block.isValid():
        style = block.blockFormat()
        fragments = [(f.text(), f.charFormat().fontWeight()) for f in fragments_of(block)]
        colors = [
            (r.start, r.length, r.format.foreground().color().name())
            for r in block.layout().formats()
        ]
        margins = (style.leftMargin(), style.topMargin(), style.textIndent(), style.lineHeight())
        result.append((block.text(), margins, fragments, colors))
        block = block.next()
    return result


def fragments_of(block: object) -> list:
    result, place = [], block.begin()
    while not place.atEnd():
        result.append(place.fragment())
        place += 1
    return result


@pytest.mark.parametrize("seed", range(3))
def test_streamed_reply_equals_one_shown_whole(
    pane: ChatPane, settle: Callable[[], None], seed: int
) -> None:
    show_reply(pane, RICH)
    settle()
    whole, height = looks(pane), pane.view.row_span(1)
    pane.set_conversation(None, [], "")
    show_reply(pane, status=MessageStatus.STREAMING)
    pieces, end = random.Random(seed), 0
    while end < len(RICH):
        start, end = end, end + pieces.randint(1, 30)
        pane.apply_delta(delta("a", RICH[start:end]))

    pane.apply_finished(ReplyFinished(message("a", Role.ASSISTANT, RICH)))
    settle()

    assert looks(pane) == whole
    streamed = pane.view.row_span(1)
    assert streamed[1] - streamed[0] == height[1] - height[0]


def test_emoji_in_code_do_not_shift_its_colours(pane: ChatPane, settle: Callable[[], None]) -> None:
    show_reply(pane, '```python\nx = "🙂🙂"  # note\n```')
    settle()

    (_, _, _, colors) = looks(pane)[0][0]
    starts = {start for start, *_ in colors}
    assert len('x = "') + 5 + 2 in starts


def test_no_remote_picture_is_asked_for(pane: ChatPane) -> None:
    show_reply(pane, "![alt](https://example.org/p.png) <img src='https://example.org/q.png'>")

    widget = pane.view.widget_of("a")
    assert widget is not None
    assert widget.body.plain_text() == "alt <img src='https://example.org/q.png'>"


def test_only_web_links_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toString()))

    for address in ("https://example.org/", "file:///etc/passwd", "javascript:alert(1)"):
        open_link(QUrl(address))

    assert opened == ["https://example.org/"]


def test_copy_button_of_code_copies_code_alone(pane: ChatPane) -> None:
    show_reply(pane, "Before\n\n```python\nx = 1\ny = 2\n```\n\nAfter")
    widget = pane.view.widget_of("a")
    assert widget is not None
    block = widget.findChild(CodeBlock)

    block.copy_button.click()

    assert QGuiApplication.clipboard().text() == "x = 1\ny = 2"


def test_footer_tells_speed_and_reuse(pane: ChatPane) -> None:
    show_reply(pane, "Reply", stats=STATS)

    footer = section(pane, ReplyFooter)
    assert footer.text() == "23 tokens/s · first token 0.4 s · reused 3,912 · read 41"
    assert not footer.why_button.isVisible()


@pytest.mark.qt_log_ignore("does not support")
def test_low_reuse_explains_itself(pane: ChatPane) -> None:
    show_reply(pane, "Reply", stats=LOW_REUSE)
    footer = section(pane, ReplyFooter)
    assert footer.why_button.isVisible()

    footer.why_button.click()

    popover = footer.findChild(WhyPopover)
    words = popover.text()
    assert "3,441 tokens were read again" in words
    assert "You are terse" in words
    popover.close()


@pytest.mark.parametrize("cause", list(MissCause))
def test_every_cause_has_words(pane: ChatPane, qtbot: QtBot, cause: MissCause) -> None:
    popover = WhyPopover(pane.look, LOW_REUSE)
    qtbot.addWidget(popover)

    assert popover.cause_words(cause)


def test_versions_are_asked_for_by_number(pane: ChatPane, qtbot: QtBot) -> None:
    show_reply(pane, "Second", version=2, num_versions=3)
    footer = section(pane, ReplyFooter)

    with qtbot.waitSignal(pane.version_requested) as asked:
        footer.next_button.click()

    assert asked.args == ["a", 3]


def test_reading_shows_tokens_and_seconds(pane: ChatPane) -> None:
    show_reply(pane, status=MessageStatus.STREAMING)

    pane.apply_progress(ReplyProgress("c", "a", 1204, 4310, 512, 12.4))

    words = section(pane, WaitingLine).text()
    assert words == "Reading 1,204 of 4,310 tokens · about 12 s left"


def test_queue_place_is_shown_until_the_reply_begins(pane: ChatPane) -> None:
    show_reply(pane, status=MessageStatus.STREAMING)
    pane.apply_queued(ReplyQueued("c", "a", 2))
    assert section(pane, WaitingLine).text() == "Queued, 2 before it"

    pane.apply_delta(delta("a", "Hi"))

    assert section(pane, WaitingLine) is None


@pytest.mark.parametrize(
    ("status", "words", "button"),
    [
        (MessageStatus.STOPPED, "Stopped", "Continue"),
        (MessageStatus.LENGTH, "The reply reached its length limit", "Continue"),
        (MessageStatus.ERROR, "It broke.", "Retry"),
    ],
)
def test_chip_says_how_a_reply_ended(
    pane: ChatPane, qtbot: QtBot, status: MessageStatus, words: str, button: str
) -> None:
    show_reply(pane, "Half a", status=status, error="It broke." if button == "Retry" else "")
    chip = section(pane, StatusChip)
    signal = pane.regenerate_requested if button == "Retry" else pane.continue_requested

    with qtbot.waitSignal(signal) as asked:
        chip.findChild(QPushButton).click()

    assert chip.text() == words
    assert asked.args == ["a"]


def test_thoughts_fold_when_the_answer_begins(pane: ChatPane) -> None:
    show_reply(pane, status=MessageStatus.STREAMING)
    pane.apply_delta(delta("a", "Let me think", Channel.REASONING))
    thoughts = section(pane, ReasoningSection)
    assert thoughts.is_open

    pane.apply_delta(delta("a", "Answer"))

    assert not thoughts.is_open


def test_edit_makes_a_request_and_erases_nothing(pane: ChatPane, qtbot: QtBot) -> None:
    show_reply(pane, "Reply")
    pane.begin_edit("q")
    widget = pane.view.widget_of("q")
    assert widget is not None
    assert widget.editor is not None
    widget.editor.editor.set_text("Better question")

    with qtbot.waitSignal(pane.edit_requested) as asked:
        widget.editor.editor.submitted.emit()

    assert asked.args == ["q", "Better question"]
    assert pane.messages.rows[0].message.content == "Question"
    assert widget.editor is None


def test_edit_survives_a_change_of_zoom(pane: ChatPane) -> None:
    show_reply(pane, "Reply")
    pane.begin_edit("q")
    widget = pane.view.widget_of("q")
    assert widget is not None
    assert widget.editor is not None
    widget.editor.editor.set_text("Half written")

    pane.set_zoom(1.3)

    widget = pane.view.widget_of("q")
    assert widget is not None
    assert widget.editor is not None
    assert widget.editor.editor.text() == "Half written"


def test_unchanged_edit_asks_for_nothing(pane: ChatPane, qtbot: QtBot) -> None:
    show_reply(pane, "Reply")
    pane.begin_edit("q")

    with qtbot.assertNotEmitted(pane.edit_requested):
        pane.view.widget_of("q").editor.editor.submitted.emit()


def test_copy_as_markdown_and_as_plain_text(pane: ChatPane) -> None:
    show_reply(pane, "Some **bold** text\n\n- one")

    pane.view.action_triggered.emit("a", Action.COPY.value)
    assert QGuiApplication.clipboard().text() == "Some **bold** text\n\n- one"

    pane.view.action_triggered.emit("a", Action.COPY_PLAIN.value)
    assert QGuiApplication.clipboard().text() == "Some bold text\n\n• one"


def test_regenerate_and_delete_are_requests(pane: ChatPane, qtbot: QtBot) -> None:
    show_reply(pane, "Reply")

    with qtbot.waitSignal(pane.regenerate_requested) as asked:
        pane.view.action_triggered.emit("a", Action.REGENERATE.value)
    assert asked.args == ["a"]
    with qtbot.waitSignal(pane.delete_requested) as asked:
        pane.view.action_triggered.emit("q", Action.DELETE.value)
    assert asked.args == ["q"]


def test_events_of_messages_that_are_not_here_are_ignored(pane: ChatPane) -> None:
    show_reply(pane, "Reply")

    pane.apply_delta(delta("elsewhere", "text"))

    assert pane.messages.rows[1].message.content == "Reply"
