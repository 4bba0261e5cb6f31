from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QLineEdit

from tests.ui.fakes import FakeServices
from ui.conversations.model import ItemRole
from ui.conversations.pane import ConversationPane
from ui.theme import Theme


@pytest.fixture
def pane(qtbot, services: FakeServices, theme: Theme) -> ConversationPane:
    result = ConversationPane(services, theme)
    qtbot.addWidget(result)
    result.resize(272, 700)
    result.show()
    qtbot.waitExposed(result)
    return result


def shown(pane: ConversationPane) -> list[str]:
    return [row.id for row in pane.model.rows()]


def test_click_opens_a_conversation(qtbot, pane: ConversationPane) -> None:
    place = pane.view.visualRect(pane.model.index(2)).center()
    with qtbot.waitSignal(pane.opened) as opened:
        qtbot.mouseClick(pane.view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert opened.args == ["c2", ""]


def test_hover_prefetches(qtbot, pane: ConversationPane, services: FakeServices) -> None:
    place = pane.view.visualRect(pane.model.index(3)).center()
    qtbot.mouseMove(pane.view.viewport(), QPoint(1, 1))
    pane.view.entered.emit(pane.view.indexAt(place))
    qtbot.waitUntil(lambda: ("prefetch", "c3") in services.chat.calls)


def test_search_narrows_the_list_and_esc_brings_it_back(qtbot, pane: ConversationPane) -> None:
    qtbot.keyClicks(pane.search, "invoice")
    qtbot.waitUntil(lambda: shown(pane) == ["c2"])
    assert "\u2068invoice\u2069" in pane.model.index(0).data(ItemRole.SNIPPET)
    qtbot.keyClick(pane.search, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: len(shown(pane)) == 7)


def test_nothing_found_is_said(qtbot, pane: ConversationPane) -> None:
    pane.search.setText("zzz")
    qtbot.waitUntil(lambda: shown(pane) == [])
    assert pane._empty.isVisible()
    assert "zzz" in pane._empty.text()


def test_f2_renames_in_place(qtbot, pane: ConversationPane, services: FakeServices) -> None:
    pane.set_current("c1")
    pane.rename_current()
    editor = pane.view.findChild(QLineEdit)
    editor.setText("Lisbon")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: services.chat.rows["c1"].title == "Lisbon")


def test_esc_leaves_the_title_as_it_was(
    qtbot, pane: ConversationPane, services: FakeServices
) -> None:
    pane.set_current("c1")
    pane.rename_current()
    editor = pane.view.findChild(QLineEdit)
    editor.setText("Lisbon")
    qtbot.keyClick(editor, Qt.Key.Key_Escape)
    assert services.chat.rows["c1"].title.startswith("Weekend")


def test_delete_is_never_one_key(qtbot, pane: ConversationPane, services: FakeServices) -> None:
    pane.view.setFocus()
    pane.set_current("c1")
    qtbot.keyClick(pane.view, Qt.Key.Key_Delete)
    qtbot.keyClick(pane.view, Qt.Key.Key_Backspace)
    assert not services.chat.rows["c1"].is_deleted


def test_menu_pins_archives_and_deletes(pane: ConversationPane, services: FakeServices) -> None:
    menu = pane.build_menu(pane.model.index(1))
    by_text = {action.text(): action for action in menu.actions()}
    by_text["Pin"].trigger()
    by_text["Archive"].trigger()
    assert services.chat.rows["c1"].is_pinned
    assert services.chat.rows["c1"].is_archived
    deleted: list[str] = []
    pane.deleted.connect(deleted.append)
    by_text["Delete"].trigger()
    assert deleted == ["c1"]
    menu.deleteLater()


def test_archived_rows_are_shown_on_demand(pane: ConversationPane, services: FakeServices) -> None:
    services.chat.set_archived("c1", True)
    pane.refresh()
    assert "c1" not in shown(pane)
    pane._archived_button.click()
    assert shown(pane)[-1] == "c1"


def test_move_is_stored_before_the_row_below(
    pane: ConversationPane, services: FakeServices
) -> None:
    pane.model.moveRow(pane.view.rootIndex(), 4, pane.view.rootIndex(), 2)
    assert services.chat.calls[-1] == ("move", "c4", "c2")


def test_every_control_has_a_name(pane: ConversationPane) -> None:
    assert pane.view.accessibleName() == "Conversations"
    assert pane.search.accessibleName() == "Search conversations"
