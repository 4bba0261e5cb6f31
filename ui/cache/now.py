"""What the memory holds at the moment: tiers, sharing, reuse, speed, writes."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from app.events import CacheChanged
from engine.memory.interface import MemoryBreakdown, TierUse
from ui.cache.gauge import TierGauge
from ui.cache.sparkline import Sparkline
from ui.formats import count_text, percent_text, size_text, speed_text
from ui.theme import Theme, number_font

# A line through fewer is no more than a mark at the edge.
MIN_VALUES = 6
TIERS = ("hot", "warm", "cold")
NUMBERS = ("shared", "saved", "reused", "speed")


class NowSection(QWidget):
    """Gauges above, numbers below; numbers that are not known yet are not shown."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._last: CacheChanged | None = None
        self.gauges = {tier: TierGauge(tier, theme) for tier in TIERS}
        self._names = {name: QLabel() for name in NUMBERS}
        self.numbers = {name: QLabel("–") for name in NUMBERS}
        self.sparkline = Sparkline(theme)
        self.writes = QLabel(wordWrap=True)
        self._build()
        self.retranslate()
        self.apply_theme(theme, 1.0)

    def show_cache(self, event: CacheChanged) -> None:
        """Show the newest numbers."""
        self._last = event
        self._grid.setVisible(event.breakdown is not None)
        breakdown = event.breakdown
        tiers = {use.name: use for use in breakdown.tiers} if breakdown else {}
        tiers["cold"] = _cold(tiers.get("cold"), event)
        for name, gauge in self.gauges.items():
            gauge.set_use(tiers.get(name))
            gauge.setVisible(_is_on(tiers.get(name)) if name != "cold" else True)
        self._show_numbers(event, breakdown)
        self._show_writes(event)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        for gauge in self.gauges.values():
            gauge.apply_theme(theme, zoom)
        for label in self.numbers.values():
            label.setFont(number_font(zoom, pixels=13))
        self.sparkline.apply_theme(theme)

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        self.gauges["hot"].set_name(
            self.tr("In memory"), self.tr("What the model has read and goes on from instantly.")
        )
        self.gauges["warm"].set_name(
            self.tr("In reserve"), self.tr("Packed tighter in memory; back in a moment.")
        )
        self.gauges["cold"].set_name(
            self.tr("On disk"), self.tr("Kept over a restart; back in a fraction of a second.")
        )
        self._names["shared"].setText(self.tr("Shared blocks"))
        self._names["saved"].setText(self.tr("Saved by sharing"))
        self._names["reused"].setText(self.tr("Reused, last 20 turns"))
        self._names["speed"].setText(self.tr("Speed"))
        if self._last:
            self.show_cache(self._last)
        else:
            self._show_emptiness()

    def _build(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(12)
        for gauge in self.gauges.values():
            layout.addWidget(gauge)
        layout.addWidget(self.writes)
        self._grid = QWidget()
        grid = QGridLayout(self._grid)
        grid.setContentsMargins(0, 4, 0, 0)
        grid.setVerticalSpacing(8)
        grid.setColumnStretch(0, 1)
        for place, name in enumerate(NUMBERS):
            self._names[name].setProperty("role", "muted")
            grid.addWidget(self._names[name], place, 0)
            grid.addWidget(self.numbers[name], place, 1, Qt.AlignmentFlag.AlignRight)
        layout.addWidget(self._grid)
        layout.addWidget(self.sparkline)
        self.sparkline.hide()

    def _show_emptiness(self) -> None:
        self._grid.hide()
        for gauge in self.gauges.values():
            gauge.hide()
        self.writes.setProperty("role", "faint")
        self.writes.setText(self.tr("The numbers appear with the first model."))

    def _show_numbers(self, event: CacheChanged, breakdown: MemoryBreakdown | None) -> None:
        if breakdown:
            self.numbers["shared"].setText(count_text(breakdown.shared_blocks))
            self.numbers["saved"].setText(size_text(breakdown.saved_bytes))
        reused = "–" if event.reuse_rate is None else percent_text(event.reuse_rate)
        self.numbers["reused"].setText(reused)
        self.numbers["speed"].setText(speed_text(event.tokens_per_second))
        if event.tokens_per_second:
            self.sparkline.add(event.tokens_per_second)
        self.sparkline.setVisible(self.sparkline.num_values() >= MIN_VALUES)

    def _show_writes(self, event: CacheChanged) -> None:
        self.writes.setProperty("role", "danger" if event.cold_error else "faint")
        self.writes.style().polish(self.writes)
        if event.cold_error:
            self.writes.setText(event.cold_error)
        elif event.pending_writes:
            self.writes.setText(self.tr("Saving, %n write(s) to go", "", event.pending_writes))
        else:
            self.writes.setText(self.tr("Everything is saved"))


def _cold(use: TierUse | None, event: CacheChanged) -> TierUse:
    blocks = use.num_blocks if use else 0
    return TierUse("cold", event.cold_used_bytes, event.cold_budget_bytes, blocks)


def _is_on(use: TierUse | None) -> bool:
    return use is not None and use.budget_bytes > 0
