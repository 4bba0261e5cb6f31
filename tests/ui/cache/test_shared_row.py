from __future__ import annotations

import pytest
from PySide6.QtCore import Qt

from app.errors import SharedRefusedError
from app.events import ErrorReport, SharedStoreChanged, SharedTitle
from tests.ui.fakes import FakeServices
from ui.cache.settings_form import SettingsForm
from ui.cache.shared_row import SharedRow
from ui.theme import Theme

URL = "postgresql://ada:secret@nas.local/reprise?sslmode=require"


@pytest.fixture
def form(qtbot, services: FakeServices, theme: Theme) -> SettingsForm:
    result = SettingsForm(services, theme)
    qtbot.addWidget(result)
    result.more.setChecked(True)
    result.show()
    return result


def enter(qtbot, row: SharedRow, text: str) -> None:
    row.field.setFocus()
    row.field.selectAll()
    qtbot.keyClicks(row.field, text)
    qtbot.keyClick(row.field, Qt.Key.Key_Return)


def test_an_address_is_kept_and_shown_without_its_password(qtbot, form, services) -> None:
    enter(qtbot, form.shared, URL)
    assert services.settings.value.shared_store_url == URL
    assert form.shared.field.text() == "postgresql://ada:***@nas.local/reprise?sslmode=require"
    assert "secret" not in form.shared.field.toolTip()


def test_a_password_that_is_not_shown_is_kept_for_the_same_host_only(qtbot, form, services) -> None:
    enter(qtbot, form.shared, URL)
    enter(qtbot, form.shared, "postgresql://ada:***@nas.local/other")
    assert services.settings.value.shared_store_url == "postgresql://ada:secret@nas.local/other"
    enter(qtbot, form.shared, "postgresql://ada:***@elsewhere/other")
    assert services.settings.value.shared_store_url == "postgresql://ada:***@elsewhere/other"


def test_what_is_no_address_is_said_and_not_kept(qtbot, form, services) -> None:
    enter(qtbot, form.shared, "nas.local")
    assert services.settings.value.shared_store_url == ""
    assert form.shared.status.text().startswith("This is no address of a PostgreSQL server.")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (SharedStoreChanged(), ""),
        (SharedStoreChanged(is_on=True), "Connecting…"),
        (SharedStoreChanged(True, True, 1), "Reachable, 1 conversation(s)."),
        (
            SharedStoreChanged(True, True, 12, num_waiting=2),
            "Reachable, 12 conversation(s). 2 state(s) to be sent.",
        ),
        (
            SharedStoreChanged(True, error=ErrorReport("SharedRefusedError", "No.")),
            "The shared store does not let us in. Check user, password and sslmode in its address.",
        ),
    ],
)
def test_how_it_stands_is_said(form: SettingsForm, state, said) -> None:
    form.show_shared(state)
    assert form.shared.status.text() == said
    assert form.shared.status.isVisible() == bool(said)


def test_conversations_of_other_machines_are_offered(form: SettingsForm, services) -> None:
    elsewhere = (SharedTitle("a", "Tides & harbours"), SharedTitle("b", ""))
    form.show_shared(SharedStoreChanged(True, True, 5, elsewhere))
    assert form.shared.bring.text() == "2 not on this machine…"
    every, _, first, second = form.shared.menu(elsewhere).actions()
    assert (first.text(), second.text()) == ("Tides && harbours", "New chat")
    first.trigger()
    assert services.shared.brought == ["a"]
    every.trigger()
    assert services.shared.brought == ["a", "a", "b"]
    form.show_shared(SharedStoreChanged(True, True, 5))
    assert form.shared.bring.isHidden()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (("id", 3), "Reachable, 3 conversation(s)."),
        (SharedRefusedError("No."), "The shared store does not let us in."),
    ],
)
def test_the_test_button_asks_the_server(qtbot, form, services, monkeypatch, answer, said) -> None:
    asked: list[str] = []

    def look(url: str) -> tuple[str, int]:
        asked.append(url)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("app.store.shared.store.look", look)
    services.settings.update(shared_store_url=URL)
    form.refresh()
    qtbot.mouseClick(form.shared.test, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: form.shared.status.text().startswith(said))
    assert asked == [URL]
