from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.events import Advice, AdviceKind, CodecAccuracy
from app.settings import Settings
from engine.memory.interface import TierUse
from tests.ui.fakes import CACHE, GIB, MODEL, FakeServices
from ui.cache.history import NUM_SHOWN
from ui.cache.now import MIN_VALUES
from ui.cache.panel import CachePanel
from ui.elided import ElidedLabel
from ui.theme import Theme


@pytest.fixture
def panel(qtbot, services: FakeServices, theme: Theme) -> CachePanel:
    result = CachePanel(services, theme)
    qtbot.addWidget(result)
    result.resize(320, 900)
    result.show()
    return result


def test_before_a_model_it_says_what_will_come(panel: CachePanel) -> None:
    assert panel.now.writes.text() == "The numbers appear with the first model."
    assert not panel.now.gauges["hot"].isVisible()


def test_numbers_of_now(panel: CachePanel) -> None:
    panel.show_cache(CACHE)
    texts = {name: label.text() for name, label in panel.now.numbers.items()}
    assert texts == {
        "shared": "128",
        "saved": "96 MB",
        "reused": "94 %",
        "speed": "41.3 tokens/s",
    }
    assert panel.now.gauges["hot"].accessibleName() == "In memory: 412 MB of 1.0 GB"
    assert panel.now.writes.text() == "Everything is saved"


def test_gauge_of_a_tier_that_is_off_is_not_shown(panel: CachePanel) -> None:
    assert CACHE.breakdown is not None
    tiers = tuple(t for t in CACHE.breakdown.tiers if t.name != "warm")
    off = (*tiers, TierUse("warm", 0, 0, 0))
    panel.show_cache(replace(CACHE, breakdown=replace(CACHE.breakdown, tiers=off)))
    assert not panel.now.gauges["warm"].isVisible()
    assert panel.now.gauges["hot"].isVisible()


def test_why_nothing_is_kept_is_said_in_words(panel: CachePanel) -> None:
    panel.show_cache(replace(CACHE, cold_error="The disk is full."))
    assert panel.now.writes.text() == "The disk is full."
    panel.show_cache(replace(CACHE, pending_writes=1))
    assert "1" in panel.now.writes.text()


def test_speed_is_drawn_once_there_are_a_few_values(panel: CachePanel) -> None:
    panel.show_cache(CACHE)
    assert not panel.now.sparkline.isVisible()
    for _ in range(MIN_VALUES):
        panel.show_cache(CACHE)
    assert panel.now.sparkline.isVisible()
    assert not panel.now.sparkline.grab().isNull()


def test_choice_is_written_at_once_and_offers_a_reload(
    panel: CachePanel, services: FakeServices
) -> None:
    panel.set_model(MODEL)
    row = panel.form.rows["kv_codec"]
    place = [choice.value for choice in row._choices].index("f32")
    row.combo.activated.emit(place)
    assert services.settings.value.kv_codec == "f32"
    assert row.combo.currentText() == "32-bit, exact · 44 MB"
    assert row.effective.text() == "now f16"
    assert panel.form.reload.isVisible()
    panel.set_model(replace(MODEL, kv_codec="f32"))
    assert not panel.form.reload.isVisible()


def test_the_size_that_was_chosen_for_the_model_is_told(
    panel: CachePanel, services: FakeServices
) -> None:
    panel.set_model(replace(MODEL, block_size=64))
    row = panel.form.rows["block_size"]
    assert (row.combo.currentText(), row.effective.text()) == ("Automatic", "now 64")
    row.combo.activated.emit([choice.value for choice in row._choices].index(16))
    assert services.settings.value.block_size == 16
    row.reset_button.click()
    assert services.settings.value.block_size is None


def test_reset_returns_to_the_default(panel: CachePanel, services: FakeServices) -> None:
    row = panel.form.rows["context_length"]
    assert not row.reset_button.isVisible()
    row.chosen.emit(4096)
    assert row.reset_button.isVisible()
    row.reset_button.click()
    assert services.settings.value.context_length is Settings().context_length


def test_context_beyond_the_model_is_disabled_with_the_reason(panel: CachePanel) -> None:
    panel.set_model(MODEL)
    row = panel.form.rows["context_length"]
    place = [choice.value for choice in row._choices].index(32_768)
    item = row.combo.model().item(place)
    assert not item.isEnabled()
    assert "8,192" in item.toolTip()


def test_disk_budget_is_told_in_the_users_own_conversations(panel: CachePanel) -> None:
    panel.set_model(MODEL)
    row = panel.form.rows["cold_budget_bytes"]
    row.chosen.emit(10 * GIB)
    assert row.words.text() == "10.0 GB · about 117 of your conversations"


def test_disk_budget_is_unavailable_when_nothing_is_kept(panel: CachePanel) -> None:
    panel.form.rows["keep_conversations_ready"].switch.click()
    row = panel.form.rows["cold_budget_bytes"]
    assert not row.slider.isEnabled()
    assert row.toolTip() == "Nothing is kept on disk."


def test_keys_move_a_budget_and_write_it(qtbot, panel: CachePanel, services: FakeServices) -> None:
    slider = panel.form.rows["hot_budget_bytes"].slider
    qtbot.keyClick(slider, Qt.Key.Key_Right)
    assert services.settings.value.hot_budget_bytes == 256 << 20


def test_wheel_scrolls_the_panel_and_changes_nothing(
    panel: CachePanel, services: FakeServices
) -> None:
    before = services.settings.value
    nowhere = QPoint()
    for row in (panel.form.rows["kv_codec"], panel.form.rows["hot_budget_bytes"]):
        wheel = QWheelEvent(
            QPointF(5, 5),
            QPointF(5, 5),
            nowhere,
            QPoint(0, -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(row.control(), wheel)
    assert services.settings.value == before


def test_every_setting_has_a_name_and_a_sentence(panel: CachePanel) -> None:
    for name, row in panel.form.rows.items():
        assert row.control().accessibleName(), name
        assert row.control().accessibleDescription(), name


def test_history_lists_what_is_kept_and_frees_it(
    qtbot, panel: CachePanel, services: FakeServices
) -> None:
    history = panel.history
    qtbot.waitUntil(lambda: len(history.findChildren(ElidedLabel)) == NUM_SHOWN)
    assert history._more.text() == "Show all 7"
    history.free("c0")
    qtbot.waitUntil(lambda: history._answer.text() == "90 MB freed")
    history.check()
    qtbot.waitUntil(lambda: history._answer.text().startswith("All 6 blocks are sound"))
    history.compact()
    qtbot.waitUntil(lambda: history._answer.text().startswith("3.0 MB given back"))
    history.free_all()
    qtbot.waitUntil(lambda: history._empty.isVisible() and not history._buttons.isVisible())
    assert services.kv.uses == []


def test_advice_is_shown_with_its_numbers_and_leads_to_the_setting(
    qtbot, panel: CachePanel
) -> None:
    assert not panel.advice.isVisible()
    low = Advice(AdviceKind.LOW_REUSE, (("reuse_rate", 0.31), ("num_turns", 12.0)), "block_size")
    disk = Advice(AdviceKind.NOT_KEPT, (("cold_budget_bytes", 0.0),))
    panel.show_cache(replace(CACHE, advice=(low, disk), cold_error="The disk is full."))
    words = [label.text() for label in panel.advice.findChildren(QLabel) if label.text()]
    assert words == [
        "Only 31\N{NO-BREAK SPACE}% of what was known was reused in the last 12 turns.",
        "The disk is full.",
    ]
    link = next(b for b in panel.advice.findChildren(QPushButton) if b.isVisible())
    qtbot.mouseClick(link, Qt.MouseButton.LeftButton)
    assert panel.form.rows["block_size"].isVisible()
    panel.show_cache(CACHE)
    assert not panel.advice.isVisible()


def test_every_kind_of_advice_has_words(panel: CachePanel) -> None:
    names = ("reuse_rate", "num_turns", "held_bytes", "hot_bytes", "slow_ms", "usual_ms")
    names += ("restored_tokens_per_second", "read_tokens_per_second", "cold_budget_bytes")
    values = tuple((name, 2.0) for name in names)
    assert len({panel.advice.words(Advice(kind, values)) for kind in AdviceKind}) == len(AdviceKind)


def test_what_to_do_when_the_context_is_full_is_a_setting(panel: CachePanel, services) -> None:
    panel.set_model(replace(MODEL, can_roll=False))
    combo = panel.form.rows["overflow"].combo
    assert combo.currentText() == "Ask me"
    rolling = combo.model().item(3)
    assert not rolling.isEnabled()
    assert rolling.toolTip() == "This model's memory cannot be moved."
    combo.activated.emit(1)
    assert services.settings.value.overflow == "drop_oldest"
    assert not panel.form.reload.isVisible()
    panel.set_model(MODEL)
    assert combo.model().item(3).isEnabled()


@pytest.mark.parametrize("language", ["en", "zh_CN"])
def test_no_setting_is_wider_than_the_panel(window, services, language: str) -> None:
    services.settings.update(language=language)
    window.resize(1280, 820)
    window.show()
    panel = window.cache
    panel.form.more.setChecked(True)
    QApplication.processEvents()
    room = panel.width() - 2 * panel.form.mapTo(panel, QPoint()).x()
    widths = {name: row.minimumSizeHint().width() for name, row in panel.form.rows.items()}
    assert {name for name, width in widths.items() if width > room} == set()


def test_layers_go_to_a_graphics_processor_only_where_there_is_one(panel, services) -> None:
    row = panel.form.rows["offload_share"]
    panel.set_model(MODEL)
    assert not row.combo.isEnabled()
    assert row.toolTip() == "There is no graphics processor that can be used."
    on_card = replace(MODEL, accelerator="cuda", num_layers=30, num_offloaded=20)
    services.settings.update(offload_share=None)
    panel.set_model(on_card)
    assert row.combo.isEnabled()
    assert (row.combo.currentText(), row.effective.text()) == (
        "As many as fit",
        "now 20 of 30 layers",
    )


def test_every_parameter_of_the_pools_can_be_chosen(panel: CachePanel, services) -> None:
    for name, place, value in (
        ("parallel_sequences", 1, 2),
        ("warm_budget_bytes", 1, 0),
        ("eviction_order", 2, "frequency"),
    ):
        panel.form.rows[name].combo.activated.emit(place)
        assert getattr(services.settings.value, name) == value


def test_all_precisions_are_offered_before_a_model_is_loaded(panel: CachePanel) -> None:
    panel.set_model(None)
    combo = panel.form.rows["kv_codec"].combo
    assert combo.count() == 5


def test_what_the_precision_costs_is_shown_under_it(panel: CachePanel) -> None:
    panel.set_model(MODEL)
    assert panel.form.accuracy.isHidden()
    accuracy = CodecAccuracy("int8", 256, 0.0005, 0.992, 0.0003)
    panel.set_model(replace(MODEL, kv_codec="int8", codec_accuracy=accuracy))
    check = panel.form.accuracy
    texts = [check.numbers[name].text() for name in ("top1", "nll", "kl")]
    assert texts == ["99.2 %", "+0.05 %", "0.0003"]
    assert "256 tokens" in check.words.text()
    assert check.words.property("role") == "faint"
    panel.set_model(replace(MODEL, codec_accuracy=replace(accuracy, top1=0.9)))
    assert "you chose to" in check.words.text()
    assert check.words.property("role") == "danger"
