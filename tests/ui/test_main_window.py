from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication, QImage
from PySide6.QtWidgets import QAbstractButton, QLineEdit, QWidget

from app.conversation import ContextChoice, ContextQuestion, MessageStatus
from app.errors import DatabaseFullError
from app.events import (
    CodecAccuracy,
    ErrorReport,
    ModelFailed,
    ModelLoaded,
    ModelLoading,
    ModelUnloaded,
    Notice,
    ReplyFinished,
)
from app.export import to_json
from app.importers import read_file
from app.memory_estimate import MemoryEstimate
from tests.ui.fakes import GIB, MODEL, STATS, FakeServices
from ui.appearance import Appearance
from ui.error_dialog import ErrorDialog
from ui.exchange import file_name
from ui.instructions.dialog import InstructionsDialog
from ui.main_window import MainWindow
from ui.models.codec_refused import CodecRefusedDialog
from ui.models.too_large import TooLargeDialog
from ui.notifier import is_long
from ui.window_state import WindowState


@pytest.fixture
def shown(qtbot, window: MainWindow) -> MainWindow:
    window.show()
    qtbot.waitExposed(window)
    return window


def test_window_needs_no_torch() -> None:
    code = (
        "import sys, pathlib, tempfile;"
        "from ui.main import build_application; app = build_application();"
        "from tests.ui.fakes import FakeServices;"
        "from ui.appearance import Appearance; from ui.main_window import MainWindow;"
        "from ui.window_state import WindowState;"
        "home = pathlib.Path(tempfile.mkdtemp()); services = FakeServices(home);"
        "window = MainWindow(services, Appearance(services.settings),"
        " WindowState(home / 'state.ini'), None);"
        "window.show(); app.processEvents(); services.load(); app.processEvents();"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_first_paint_is_told_once(qtbot, window: MainWindow) -> None:
    times: list[None] = []
    window.painted.connect(lambda: times.append(None))
    window.show()
    qtbot.waitUntil(lambda: times != [])
    window.repaint()
    qtbot.wait(20)
    assert len(times) == 1


def test_without_model_and_conversation_the_welcome_page_is_up(shown: MainWindow) -> None:
    assert shown.welcome.isVisible()
    shown.conversations.opened.emit("c1", "")
    assert shown.pane.isVisible()


def test_loading_shows_progress_and_can_be_cancelled(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    services.emit(ModelLoading("/m/gemma.gguf", 0.4, "tensors"))
    qtbot.waitUntil(lambda: shown.top.model.text() == "Loading gemma")
    qtbot.mouseClick(shown.top.cancel, Qt.MouseButton.LeftButton)
    assert services.worker.calls[-1] == ("cancel_load",)
    services.emit(ModelUnloaded("/m/gemma.gguf", cancelled=True))
    qtbot.waitUntil(lambda: shown.top.model.text() == "Choose a model")
    assert not shown.top.cancel.isVisible()


def test_failed_load_is_explained(qtbot, shown: MainWindow, services: FakeServices) -> None:
    error = ErrorReport("ModelFileError", "The file ends too early.", "offset 1234")
    services.emit(ModelFailed("/m/cut.gguf", error))
    qtbot.waitUntil(lambda: shown.findChild(ErrorDialog) is not None)
    dialog = shown.findChild(ErrorDialog)
    dialog.copy_details()
    copied = QGuiApplication.clipboard().text()
    assert "ModelFileError: The file ends too early." in copied
    assert "offset 1234" in copied
    dialog.close()


def test_dropped_model_is_loaded(qtbot, shown: MainWindow, services: FakeServices) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/models/a.gguf")])
    drop = QDropEvent(
        QPointF(10, 10),
        Qt.DropAction.CopyAction,
        data,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    shown.dropEvent(drop)
    qtbot.waitUntil(lambda: services.worker.calls == [("load_model", Path("/models/a.gguf"))])


def test_too_large_a_file_is_loaded_only_after_an_answer(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    memory = MemoryEstimate(60 * GIB, GIB, 8192, 4 * GIB)
    shown.models.too_large.emit(Path("/models/big.gguf"), memory)
    dialog = shown.findChild(TooLargeDialog)
    assert services.worker.calls == []
    qtbot.mouseClick(dialog.anyway, Qt.MouseButton.LeftButton)
    assert services.worker.calls == [("load_model", Path("/models/big.gguf"))]


def test_a_refused_precision_is_told_with_its_numbers_and_two_ways_on(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    accuracy = CodecAccuracy("int8", 256, 0.0123, 0.957, 0.0211)
    error = ErrorReport("CodecRefusedError", "int8 would lose too much.")
    services.settings.update(kv_codec="int8")
    for choose, changed in (
        (lambda dialog: dialog.force, {"force_kv_codec": True, "kv_codec": "int8"}),
        (lambda dialog: dialog.plain, {"kv_codec": "f16"}),
    ):
        services.emit(ModelFailed("/m/a.gguf", error, accuracy))
        qtbot.waitUntil(lambda: shown.findChild(CodecRefusedDialog) is not None)
        dialog = shown.findChild(CodecRefusedDialog)
        assert "95.7 %" in dialog.text()
        assert "+1.23 %" in dialog.text()
        choose(dialog).click()
        qtbot.waitUntil(lambda: shown.findChild(CodecRefusedDialog) is None)
        assert services.worker.calls[-1] == ("load_model", Path("/m/a.gguf"))
        for name, value in changed.items():
            assert getattr(services.settings.value, name) == value
    assert shown.findChild(ErrorDialog) is None


def test_a_full_context_is_answered_in_the_chat(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    services.load()
    shown.chat.open("c1")
    reply = services.chat.path("c1")[-1]
    question = ContextQuestion(900, 800, 1000, (ContextChoice("drop_oldest", 2, 300, 400, 4.0),))
    services.chat.change_message(
        reply.id, content="", status=MessageStatus.ASKING, question=question
    )
    shown.pane.question_answered.emit(reply.id, "drop_oldest", True)
    assert ("choose", reply.id, "drop_oldest") in services.chat.calls
    assert services.settings.value.overflow == "drop_oldest"
    asked = services.chat.path("c1")[-2].content
    shown.pane.composer.set_draft("and more")
    shown.pane.question_answered.emit(reply.id, "cancel", False)
    assert shown.pane.composer.editor.text() == f"{asked}\n\nand more"
    first = services.chat.path("c1")[0]
    shown.pane.pin_requested.emit(first.id, True)
    assert services.chat.path("c1")[0].is_pinned
    shown.pane.question_answered.emit(first.id, "start_over", False)
    assert shown.chat.current not in (None, "c1")


def test_a_base_model_is_explained_until_it_was_read(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    base = replace(MODEL, path="/m/base.gguf", has_chat_template=False)
    services.emit(ModelLoaded(base))
    qtbot.waitUntil(lambda: not shown.pane.note.isHidden())
    assert "without a chat template" in shown.pane.note.text()
    services.emit(ModelLoaded(MODEL))
    qtbot.waitUntil(lambda: shown.pane.note.isHidden())
    services.emit(ModelLoaded(base))
    qtbot.waitUntil(lambda: not shown.pane.note.isHidden())
    shown.pane.note.dismiss()
    services.emit(ModelLoaded(base))
    qtbot.wait(20)
    assert shown.pane.note.isHidden()


def test_dropped_conversations_are_imported(
    qtbot, shown: MainWindow, services: FakeServices, tmp_path: Path
) -> None:
    file = tmp_path / "chats.json"
    row = services.chat.conversations()[0]
    file.write_text(to_json([(row, services.chats.messages(row.id))]), encoding="utf-8")
    shown.open_files([str(file)])
    qtbot.waitUntil(lambda: shown.toast.text() == "1 conversation imported")
    assert [t.title for t in services.chats.imported] == [row.title]
    file.write_text("{}", encoding="utf-8")
    shown.open_files([str(file)])
    qtbot.waitUntil(lambda: shown.toast.text().startswith("This file holds no conversations"))


def test_conversation_is_exported_for_people_and_for_programs(
    qtbot, shown: MainWindow, services: FakeServices, tmp_path: Path
) -> None:
    row = services.chat.conversations()[0]
    shown.exchange.export_markdown(row, tmp_path / "a.md")
    qtbot.waitUntil(lambda: shown.toast.text() == "Saved as a.md")
    assert (tmp_path / "a.md").read_text("utf-8").startswith(f"# {row.title}")
    shown.exchange.export_json(None, tmp_path / "all.json")
    qtbot.waitUntil(lambda: shown.toast.text() == "Saved as all.json")
    assert len(read_file(tmp_path / "all.json")) == len(services.chat.conversations())


def test_file_names_are_fit_for_every_system() -> None:
    assert file_name('What is "a/b"? \n') == "What is a b"
    assert file_name("..") == "conversation"


def test_instructions_of_one_conversation_and_of_all(
    shown: MainWindow, services: FakeServices
) -> None:
    services.settings.update(system_prompt="Be brief.")
    shown.conversations.opened.emit("c1", "")
    shown.actions_["chat_instructions"].trigger()
    dialog = shown.findChild(InstructionsDialog)
    assert dialog.follows.isChecked()
    assert dialog.prompt.placeholderText() == "Be brief."
    dialog.prompt.setPlainText("Speak like a sailor. ")
    dialog.follows.click()
    dialog.form.presets["precise"].click()
    dialog.save()
    assert services.chat.rows["c1"].system_prompt == "Speak like a sailor."
    assert services.chat.rows["c1"].sampling.temperature == 0.0
    shown.instructions.open_general()
    general = next(d for d in shown.findChildren(InstructionsDialog) if d is not dialog)
    assert not general.follows.isVisible()
    general.form.seed.setText("7")
    general.save()
    assert services.settings.value.sampling.seed == 7


def test_long_reply_is_told_only_while_nobody_looks(
    qtbot, monkeypatch, shown: MainWindow, services: FakeServices
) -> None:
    stats = replace(STATS, timing=replace(STATS.timing, first_token_ms=20_000.0))
    message = replace(services.chat.path("c1")[-1], stats=stats)
    assert is_long(message)
    assert not is_long(replace(message, status=MessageStatus.STOPPED))
    monkeypatch.setattr(QGuiApplication, "focusWindow", lambda: None)
    services.settings.update(notify_when_done=False)
    services.emit(ReplyFinished(message))
    qtbot.wait(60)
    assert shown.notifier.last == ""
    services.settings.update(notify_when_done=True)
    services.emit(ReplyFinished(message))
    qtbot.waitUntil(lambda: shown.notifier.last == services.chat.rows["c1"].title)


def test_reload_loads_the_same_file_again(qtbot, shown: MainWindow, services: FakeServices) -> None:
    services.load()
    qtbot.waitUntil(lambda: shown.models.info is not None)
    shown.cache.reload_requested.emit()
    assert services.worker.calls == [("load_model", Path(MODEL.path))]


def test_last_model_is_loaded_only_where_its_file_is(
    shown: MainWindow, services: FakeServices, tmp_path: Path
) -> None:
    services.settings.update(last_model=str(tmp_path / "gone.gguf"))
    shown.models.load_last()
    assert services.worker.calls == []
    (tmp_path / "here.gguf").touch()
    services.settings.update(last_model=str(tmp_path / "here.gguf"))
    shown.models.load_last()
    assert services.worker.calls == [("load_model", tmp_path / "here.gguf")]


def test_starter_is_fetched_and_loaded(qtbot, shown: MainWindow, services: FakeServices) -> None:
    shown.welcome.starter_requested.emit()
    qtbot.waitUntil(lambda: services.worker.calls != [])
    assert services.worker.calls == [("load_model", services.paths.models / "m.gguf")]


def test_deleted_conversation_can_be_brought_back(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    shown.conversations.opened.emit("c1", "")
    shown.conversations.delete_current()
    qtbot.waitUntil(lambda: shown.chat.current is None)
    assert shown.toast.text() == "Conversation deleted"
    shown.toast.act()
    assert not services.chat.rows["c1"].is_deleted
    assert not shown.toast.isVisible()


def test_sending_without_a_conversation_begins_one(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    shown.chat.new()
    shown.pane.send_requested.emit("Hello")
    assert shown.chat.current in services.chat.rows
    assert services.chat.calls[-1] == ("send", shown.chat.current, "Hello")
    qtbot.waitUntil(lambda: shown.conversations.model.index_of(shown.chat.current).isValid())


def test_what_cannot_be_sent_is_written_in_the_composer_again(
    shown: MainWindow, services: FakeServices, monkeypatch
) -> None:
    def refuse(conversation_id: str, text: str) -> None:
        raise DatabaseFullError("The disk is full; chats.db cannot grow.")

    shown.conversations.opened.emit("c1", "")
    shown.pane.composer.set_model_name("Model")
    with monkeypatch.context() as patch:
        patch.setattr(services.chat, "send", refuse)
        shown.pane.composer.set_draft("A long letter")
        shown.pane.composer.submit()
    assert shown.pane.composer.editor.text() == "A long letter"
    assert services.chat.rows["c1"].draft == "A long letter"
    assert "The disk is full." in shown.toast.text()
    shown.pane.composer.submit()
    assert services.chat.calls[-1] == ("send", "c1", "A long letter")
    assert services.chat.rows["c1"].draft == ""


def test_draft_stays_with_its_conversation(shown: MainWindow, services: FakeServices) -> None:
    shown.conversations.opened.emit("c1", "")
    shown.pane.composer.editor.setPlainText("half a thought")
    shown.conversations.opened.emit("c2", "")
    assert services.chat.rows["c1"].draft == "half a thought"
    assert services.chat.rows["c2"].draft == ""


def test_draft_of_a_new_chat_survives_a_restart(
    qtbot, shown: MainWindow, services: FakeServices, appearance: Appearance, tmp_path: Path
) -> None:
    shown.chat.new()
    shown.pane.composer.editor.setPlainText("not sent yet")
    shown.close()
    again = MainWindow(services, appearance, WindowState(tmp_path / "state.ini"), None)
    qtbot.addWidget(again)
    assert again.pane.composer.editor.toPlainText() == "not sent yet"


def test_window_comes_back_where_it_was(
    qtbot, shown: MainWindow, services: FakeServices, appearance: Appearance, tmp_path: Path
) -> None:
    shown.resize(720, 600)
    shown.conversations.opened.emit("c3", "")
    shown.actions_["show_cache"].trigger()
    shown.close()
    again = MainWindow(services, appearance, WindowState(tmp_path / "state.ini"), None)
    qtbot.addWidget(again)
    assert (again.width(), again.height()) == (720, 600)
    assert again.chat.current == "c3"
    assert again.cache.isHidden()


def test_theme_follows_the_choice_everywhere(shown: MainWindow, services: FakeServices) -> None:
    def corner() -> int:
        image: QImage = shown.grab().toImage()
        return image.pixelColor(4, shown.height() - 4).lightness()

    assert corner() > 200
    dark = next(a for a in shown.actions_.themes.actions() if a.data() == "dark")
    dark.trigger()
    assert services.settings.value.theme == "dark"
    assert corner() < 60


def test_language_switches_every_visible_text(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    shown.conversations.opened.emit("c1", "")
    chinese = next(a for a in shown.actions_.languages.actions() if a.data() == "zh_CN")
    chinese.trigger()
    assert shown.actions_["new_chat"].text() == "新对话"
    assert shown.conversations.search.placeholderText() == "搜索标题和内容"
    assert shown.cache.form.rows["kv_codec"].title.text() == "记忆精度"
    english = next(a for a in shown.actions_.languages.actions() if a.data() == "en")
    english.trigger()
    assert shown.actions_["new_chat"].text() == "New chat"


def test_zoom_scales_and_is_kept(shown: MainWindow, services: FakeServices) -> None:
    before = shown.conversations.delegate.sizeHint(None, shown.conversations.model.index(2))
    shown.actions_["zoom_in"].trigger()
    after = shown.conversations.delegate.sizeHint(None, shown.conversations.model.index(2))
    assert after.height() > before.height()
    assert services.settings.value.zoom == pytest.approx(1.1)
    shown.actions_["zoom_reset"].trigger()
    assert services.settings.value.zoom == 1.0


def test_shortcuts_are_unique(window: MainWindow) -> None:
    keys = [key.toString() for action in window.actions() for key in action.shortcuts()]
    assert len(keys) == len(set(keys))


def test_search_shortcut_opens_the_column_again(shown: MainWindow) -> None:
    shown.actions_["show_conversations"].trigger()
    assert shown.conversations.isHidden()
    shown.actions_["search"].trigger()
    assert shown.conversations.isVisible()


def test_notice_is_a_toast(qtbot, shown: MainWindow, services: FakeServices) -> None:
    services.emit(Notice("disk_full", "The disk is full. Nothing more is kept ready."))
    qtbot.waitUntil(shown.toast.isVisible)
    assert shown.toast.text().startswith("The disk is full")


def test_everything_that_takes_the_focus_has_a_name(
    qtbot, shown: MainWindow, services: FakeServices
) -> None:
    services.load()
    shown.conversations.opened.emit("c1", "")
    nameless = [
        f"{type(widget).__name__} in {type(widget.parentWidget()).__name__}"
        for part in (shown.conversations, shown.top, shown.cache, shown.welcome)
        for widget in part.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and isinstance(widget, QAbstractButton | QLineEdit)
        and not (widget.accessibleName() or getattr(widget, "text", str)())
    ]
    assert nameless == []


def test_enter_sends_is_a_choice_that_is_kept(shown: MainWindow, services: FakeServices) -> None:
    shown.actions_["enter_sends"].trigger()
    assert not services.settings.value.enter_sends
    assert not shown.actions_["enter_sends"].isChecked()
