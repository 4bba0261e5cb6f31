from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.errors import AppError
from app.events import ModelLoading
from app.memory_estimate import MemoryEstimate
from tests.ui.fakes import GIB, MIB, MODEL, FakeServices, fake_entries
from ui.background import Background
from ui.models.dialog import ModelsDialog
from ui.models.folders import FoldersDialog
from ui.models.library_model import LibraryModel
from ui.models.model_button import ModelButton
from ui.models.switching import model_files
from ui.models.welcome import WelcomePage
from ui.theme import Theme


def fake_estimate(path: Path, *, context_length: int | None, codec: str) -> MemoryEstimate:
    weights = 17 * GIB if "qwen" in path.name else 98 * MIB
    return MemoryEstimate(weights, 180 * MIB, 8192, 4 * GIB)


@pytest.fixture
def holder(qtbot) -> QWidget:
    result = QWidget()
    qtbot.addWidget(result)
    return result


@pytest.fixture
def dialog(qtbot, services: FakeServices, theme: Theme, holder: QWidget) -> ModelsDialog:
    services.worker.model = MODEL
    result = ModelsDialog(services, theme, 1.0, holder, estimate=fake_estimate)
    result.show()
    qtbot.waitUntil(lambda: not result._scan._is_running and "Needs" in result._estimate.text())
    return result


def test_library_model_keeps_qts_rules(qtmodeltester) -> None:
    model = LibraryModel()
    model.set_entries(fake_entries(), loaded=MODEL.path)
    qtmodeltester.check(model)


def test_damaged_files_are_listed_and_cannot_be_loaded(qtbot, dialog: ModelsDialog) -> None:
    dialog.view.setCurrentIndex(dialog.model.index(3))
    assert not dialog._load.isEnabled()
    loads: list[Path] = []
    dialog.load_requested.connect(loads.append)
    dialog._load_selected()
    assert loads == []


def test_estimate_is_shown_before_loading(qtbot, dialog: ModelsDialog) -> None:
    assert dialog._estimate.text() == (
        "Needs about 342 MB: 98 MB for the model, 180 MB for 8,192 tokens. 4.0 GB are free."
    )
    assert dialog._load.text() == "Load"


def test_too_large_a_model_can_be_loaded_anyway(qtbot, dialog: ModelsDialog) -> None:
    dialog.view.setCurrentIndex(dialog.model.index(2))
    qtbot.waitUntil(lambda: dialog._load.text() == "Load anyway")
    with qtbot.waitSignal(dialog.load_requested) as load:
        qtbot.mouseClick(dialog._load, Qt.MouseButton.LeftButton)
    assert load.args == [Path("/models/qwen.gguf")]


def test_model_button_names_model_and_progress(qtbot, theme: Theme) -> None:
    button = ModelButton(theme)
    qtbot.addWidget(button)
    assert button.text() == "Choose a model"
    button.show_loading(ModelLoading("/m/x.gguf", 0.42, "tensors"), "x")
    assert button.accessibleName() == "Model: Loading x 42 %"
    button.show_model(MODEL)
    assert button.accessibleName() == "Model: SmolLM2 135M Instruct Q4_1"


def test_welcome_offers_the_starter_only_where_nothing_is_here(qtbot, theme: Theme) -> None:
    page = WelcomePage(theme)
    qtbot.addWidget(page)
    page.show()
    assert page.starter.isVisible()
    page.set_entries(fake_entries())
    assert not page.starter.isVisible()
    with qtbot.waitSignal(page.load_requested) as load:
        page._entry_buttons[0].click()
    assert load.args == [Path(MODEL.path)]


def test_welcome_says_why_the_starter_did_not_come(qtbot, theme: Theme) -> None:
    page = WelcomePage(theme)
    qtbot.addWidget(page)
    page.show()
    page.show_progress(0.3)
    assert not page.starter.isEnabled()
    page.show_problem("There is no network.")
    assert page.starter.isEnabled()
    assert page.problem.text() == "There is no network."
    assert page.open_file.isEnabled()


def test_background_call_reports_progress_and_result(qtbot) -> None:
    background = Background("test")
    fractions: list[float] = []
    background.progressed.connect(fractions.append)

    def call() -> str:
        background.tell(0.5)
        return "here"

    with qtbot.waitSignal(background.finished) as finished:
        background.start(call)
    assert finished.args == ["here"]
    assert fractions == [0.5]


def test_background_failure_is_words(qtbot) -> None:
    background = Background("test")

    def call() -> None:
        raise AppError("There is no network.")

    with qtbot.waitSignal(background.failed) as failed:
        background.start(call)
    assert failed.args == ["There is no network."]


def test_only_the_last_of_several_wishes_is_answered(qtbot) -> None:
    background = Background("test")
    answers: list[object] = []
    background.finished.connect(answers.append)
    for number in range(5):
        background.start(lambda number=number: number)
    qtbot.waitUntil(lambda: answers != [])
    qtbot.wait(20)
    assert answers == [4]


def test_model_files_are_told_by_their_ending() -> None:
    names = ["a.gguf", "b.txt", "/x/C.GGUF", ""]
    assert model_files(names) == [Path("a.gguf"), Path("/x/C.GGUF")]


def test_folders_are_added_and_taken_away(
    qtbot, services: FakeServices, theme: Theme, holder: QWidget
) -> None:
    dialog = FoldersDialog(services, theme, holder)
    dialog.add("/data/models")
    dialog.add("/data/models")
    dialog.add(str(services.paths.models))
    assert services.settings.value.model_folders == ("/data/models",)
    with qtbot.waitSignal(dialog.changed):
        dialog.remove("/data/models")
    assert services.settings.value.model_folders == ()
    dialog.close()
