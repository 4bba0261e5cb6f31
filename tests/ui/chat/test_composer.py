"""The composer: keys, input methods, drafts, files, and what Send means now."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QInputMethodEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.conversation import MessageStatus, Role
from ui.chat.attachments import MAX_BYTES, AttachmentError, read_attachment
from ui.chat.chat_pane import ChatPane
from ui.chat.user_text import fenced

from .conftest import CONVERSATION, message, turns


def compose(pane: ChatPane, preedit: str, commit: str = "") -> None:
    event = QInputMethodEvent(preedit, [])
    if commit:
        event.setCommitString(commit)
    QApplication.sendEvent(pane.composer.editor, event)


def test_enter_sends_and_empties_the_field(pane: ChatPane, qtbot: QtBot) -> None:
    qtbot.keyClicks(pane.composer.editor, "Hello")

    with qtbot.waitSignal(pane.send_requested) as sent:
        qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Return)

    assert sent.args == ["Hello"]
    assert pane.composer.editor.text() == ""


def test_shift_enter_breaks_the_line(pane: ChatPane, qtbot: QtBot) -> None:
    editor = pane.composer.editor
    qtbot.keyClicks(editor, "a")

    with qtbot.assertNotEmitted(pane.send_requested):
        qtbot.keyClick(editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(editor, "b")

    assert editor.text() == "a\nb"


def test_ctrl_enter_sends_when_enter_does_not(pane: ChatPane, qtbot: QtBot) -> None:
    pane.set_sends_on_enter(is_on=False)
    editor = pane.composer.editor
    qtbot.keyClicks(editor, "a")
    with qtbot.assertNotEmitted(pane.send_requested):
        qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.keyClicks(editor, "b")

    with qtbot.waitSignal(pane.send_requested) as sent:
        qtbot.keyClick(editor, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)

    assert sent.args == ["a\nb"]


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter])
def test_enter_never_sends_while_composing(pane: ChatPane, qtbot: QtBot, key: Qt.Key) -> None:
    compose(pane, "", "你好")
    qtbot.wait(1)
    compose(pane, "shi'jie")

    with qtbot.assertNotEmitted(pane.send_requested):
        qtbot.keyClick(pane.composer.editor, key)


def test_enter_that_commits_a_word_does_not_send_it(pane: ChatPane, qtbot: QtBot) -> None:
    compose(pane, "shijie")
    compose(pane, "", "世界")

    with qtbot.assertNotEmitted(pane.send_requested):
        QApplication.sendEvent(pane.composer.editor, enter_press())

    assert pane.composer.editor.text() == "世界"


def enter_press() -> object:
    from PySide6.QtCore import QEvent
    from PySide6.QtGui import QKeyEvent

    none = Qt.KeyboardModifier.NoModifier
    return QKeyEvent(QEvent.Type.KeyPress, Qt.Key.Key_Return, none, "\r")


def test_enter_after_the_word_is_committed_sends(pane: ChatPane, qtbot: QtBot) -> None:
    compose(pane, "shijie")
    compose(pane, "", "世界")
    qtbot.wait(5)

    with qtbot.waitSignal(pane.send_requested) as sent:
        qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Return)

    assert sent.args == ["世界"]


def test_blank_text_is_not_sent(pane: ChatPane, qtbot: QtBot) -> None:
    qtbot.keyClicks(pane.composer.editor, "   ")

    with qtbot.assertNotEmitted(pane.send_requested):
        qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Return)


def test_without_a_model_nothing_is_lost_and_the_reason_is_said(
    pane: ChatPane, qtbot: QtBot
) -> None:
    pane.set_model(None)
    qtbot.keyClicks(pane.composer.editor, "Hello")

    with qtbot.assertNotEmitted(pane.send_requested):
        qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Return)

    assert pane.composer.editor.text() == "Hello"
    assert pane.composer.note == "Choose a model to send this"


def test_draft_is_reported_once_typing_rests(pane: ChatPane, qtbot: QtBot) -> None:
    with qtbot.waitSignal(pane.draft_changed) as changed:
        qtbot.keyClicks(pane.composer.editor, "half a thou")

    assert changed.args == ["half a thou"]


def test_shown_draft_is_not_reported_back(pane: ChatPane, qtbot: QtBot) -> None:
    pane.set_conversation(CONVERSATION, [], "kept draft")

    with qtbot.assertNotEmitted(pane.draft_changed, wait=600):
        pass

    assert pane.composer.editor.text() == "kept draft"


def test_up_in_the_empty_field_edits_the_last_own_message(pane: ChatPane, qtbot: QtBot) -> None:
    pane.set_conversation(CONVERSATION, turns(4), "")

    qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Up)

    assert pane.messages.rows[2].edit_text == "Q 2"


def test_escape_stops_a_reply(pane: ChatPane, qtbot: QtBot) -> None:
    streaming = message("a", Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    pane.set_conversation(CONVERSATION, [message("q", Role.USER, "Q"), streaming], "")

    with qtbot.waitSignal(pane.stop_requested):
        qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Escape)


def test_escape_stops_only_once(pane: ChatPane, qtbot: QtBot) -> None:
    streaming = message("a", Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    pane.set_conversation(CONVERSATION, [message("q", Role.USER, "Q"), streaming], "")
    stops: list[int] = []
    pane.stop_requested.connect(lambda: stops.append(1))

    qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Escape)

    assert len(stops) == 1


def test_busy_field_still_sends_and_says_it_will_queue(pane: ChatPane, qtbot: QtBot) -> None:
    streaming = message("a", Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    pane.set_conversation(CONVERSATION, [message("q", Role.USER, "Q"), streaming], "")
    assert pane.composer.stop_button.isVisible()
    assert not pane.composer.send_button.isVisible()

    qtbot.keyClicks(pane.composer.editor, "next")
    assert pane.composer.note == "Will be queued after this reply"

    with qtbot.waitSignal(pane.send_requested):
        qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Return)


def test_field_grows_to_two_fifths_and_then_scrolls(pane: ChatPane, qtbot: QtBot) -> None:
    one_line = pane.composer.height()
    pane.composer.editor.set_text("line\n" * 5)
    qtbot.waitUntil(lambda: pane.composer.height() > one_line)
    six_lines = pane.composer.height()

    pane.composer.editor.set_text("line\n" * 200)
    qtbot.waitUntil(lambda: pane.composer.height() > six_lines)

    assert pane.composer.height() <= pane.height() * 0.45


def test_pasted_file_becomes_a_fenced_block(pane: ChatPane, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "notes.py"
    path.write_text("x = 1\n", encoding="utf-8")
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(path))])
    pane.composer.editor.insertFromMimeData(mime)
    qtbot.keyClicks(pane.composer.editor, "Look")

    with qtbot.waitSignal(pane.send_requested) as sent:
        qtbot.keyClick(pane.composer.editor, Qt.Key.Key_Return)

    assert sent.args == ["Look\n\n" + fenced("notes.py", "x = 1")]


def test_rich_text_is_pasted_as_plain_text(pane: ChatPane) -> None:
    mime = QMimeData()
    mime.setHtml("<b>bold</b>")
    mime.setText("bold")

    pane.composer.editor.insertFromMimeData(mime)

    assert pane.composer.editor.toPlainText() == "bold"


@pytest.mark.parametrize(
    ("name", "data"),
    [("big.txt", b"x" * (MAX_BYTES + 1)), ("program", b"\x7fELF\0\0\0")],
)
def test_files_that_cannot_go_along_say_why(
    pane: ChatPane, tmp_path: Path, name: str, data: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(data)

    pane.composer.attach([str(path)])

    assert name in pane.composer.note
    assert not pane.composer.can_send


def test_missing_file_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(AttachmentError, match="cannot be read"):
        read_attachment(tmp_path / "gone.txt")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030"])
def test_chinese_files_are_read_in_their_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "文件.txt"
    path.write_text("你好，世界", encoding=encoding)

    assert read_attachment(path).content == "你好，世界"


def test_context_meter_warns_from_four_fifths(pane: ChatPane) -> None:
    meter = pane.composer.meter
    pane.set_context_use(6000, 8192)
    assert not meter.is_nearly_full

    pane.set_context_use(6600, 8192)

    assert meter.is_nearly_full
    assert meter.text() == "6,600 / 8,192"


def test_sample_prompt_fills_the_field(pane: ChatPane) -> None:
    pane.empty.prompt_chosen.emit("Tell me")

    assert pane.composer.editor.text() == "Tell me"
