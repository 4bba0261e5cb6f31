from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QModelIndex, Qt

from tests.ui.fakes import FakeServices, fake_conversations
from ui.conversations.model import ConversationListModel, ItemRole, grouped
from ui.formats import ago_text


@pytest.fixture
def model(qtmodeltester, services: FakeServices) -> ConversationListModel:
    result = ConversationListModel(services.chat.readiness)
    result.set_rows(services.chat.conversations())
    return result


def ids(model: ConversationListModel) -> list[str]:
    return [row.id for row in model.rows()]


def test_model_keeps_qts_rules(qtmodeltester, model: ConversationListModel) -> None:
    qtmodeltester.check(model)


def test_rows_are_moved_inserted_and_removed_without_a_reset(
    qtbot, model: ConversationListModel
) -> None:
    resets: list[None] = []
    model.modelReset.connect(lambda: resets.append(None))
    rows = list(model.rows())
    fresh = replace(rows[0], id="c50", title="fresh")
    model.set_rows([fresh, rows[3], rows[1], rows[6]])
    assert ids(model) == ["c50", "c3", "c1", "c6"]
    assert resets == []


def test_editor_survives_a_refresh_of_the_list(model: ConversationListModel) -> None:
    from PySide6.QtCore import QPersistentModelIndex

    kept = QPersistentModelIndex(model.index(2))
    rows = list(model.rows())
    model.set_rows([replace(rows[4], title="moved up"), *rows[:4], *rows[5:]])
    assert kept.isValid()
    assert kept.row() == 3
    assert kept.data(ItemRole.ID) == "c2"


def test_headings_stand_on_the_first_row_of_a_group(model: ConversationListModel) -> None:
    headings = [model.index(row).data(ItemRole.GROUP) for row in range(model.rowCount())]
    assert headings == ["Pinned", "Chats", "", "", "", "", ""]


def test_folders_and_archive_come_together(services: FakeServices) -> None:
    services.chat.set_folder("c2", "Work")
    services.chat.set_folder("c5", "Work")
    services.chat.set_archived("c1", True)
    rows = grouped(services.chat.conversations(include_archived=True))
    assert [row.id for row in rows] == ["c0", "c3", "c4", "c6", "c2", "c5", "c1"]


def test_drag_moves_within_the_group_only(model: ConversationListModel) -> None:
    moved: list[str] = []
    model.moved.connect(moved.append)
    assert model.moveRow(QModelIndex(), 3, QModelIndex(), 1)
    assert ids(model)[:4] == ["c0", "c3", "c1", "c2"]
    assert model.below("c3") == "c1"
    assert not model.moveRow(QModelIndex(), 3, QModelIndex(), 0)
    assert moved == ["c3"]


def test_search_results_cannot_be_reordered(model: ConversationListModel) -> None:
    model.set_rows(model.rows(), {"c1": "found"})
    assert not model.moveRow(QModelIndex(), 3, QModelIndex(), 1)


def test_rename_asks_and_does_not_change_the_row(model: ConversationListModel) -> None:
    asked: list[tuple[str, str]] = []
    model.rename_requested.connect(lambda *args: asked.append(args))
    assert model.setData(model.index(1), "  Lisbon ")
    assert model.setData(model.index(1), "   ")
    assert asked == [("c1", "Lisbon")]
    assert model.index(1).data(Qt.ItemDataRole.EditRole).startswith("Weekend")


def test_rows_can_be_heard(model: ConversationListModel) -> None:
    spoken = model.index(2).data(Qt.ItemDataRole.AccessibleTextRole)
    age = ago_text(fake_conversations()[2].updated_at)
    assert spoken == f"Refactor the invoice parser, {age}, ready: 0.1 s, unread"
