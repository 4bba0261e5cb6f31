"""How tokens are drawn, as a few presets and the numbers behind them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from PySide6.QtCore import QT_TRANSLATE_NOOP, QCoreApplication, Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDoubleSpinBox,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from engine.config import SamplingParams


@dataclass(frozen=True, slots=True)
class Number:
    """One field. text, sentence: as QT_TRANSLATE_NOOP returns them; decimals 0: whole numbers."""

    name: str
    text: object
    sentence: object
    low: float
    high: float
    step: float
    decimals: int


NUMBERS = (
    Number(
        "temperature",
        QT_TRANSLATE_NOOP("SamplingForm", "Temperature"),
        QT_TRANSLATE_NOOP("SamplingForm", "0 always takes the likeliest word."),
        0.0,
        5.0,
        0.1,
        2,
    ),
    Number(
        "top_p",
        QT_TRANSLATE_NOOP("SamplingForm", "Top p"),
        QT_TRANSLATE_NOOP("SamplingForm", "Keeps the likeliest words up to this share; 1 is off."),
        0.0,
        1.0,
        0.05,
        2,
    ),
    Number(
        "top_k",
        QT_TRANSLATE_NOOP("SamplingForm", "Top k"),
        QT_TRANSLATE_NOOP("SamplingForm", "Keeps this many of the likeliest words; 0 is off."),
        0,
        1_000_000,
        5,
        0,
    ),
    Number(
        "min_p",
        QT_TRANSLATE_NOOP("SamplingForm", "Min p"),
        QT_TRANSLATE_NOOP("SamplingForm", "Drops words rarer than this share of the likeliest."),
        0.0,
        1.0,
        0.01,
        2,
    ),
    Number(
        "repetition_penalty",
        QT_TRANSLATE_NOOP("SamplingForm", "Repetition penalty"),
        QT_TRANSLATE_NOOP("SamplingForm", "1 is off; 1.1 discourages repeating."),
        0.5,
        3.0,
        0.05,
        2,
    ),
    Number(
        "presence_penalty",
        QT_TRANSLATE_NOOP("SamplingForm", "Presence penalty"),
        QT_TRANSLATE_NOOP("SamplingForm", "Discourages every word that was used."),
        -2.0,
        2.0,
        0.1,
        2,
    ),
    Number(
        "frequency_penalty",
        QT_TRANSLATE_NOOP("SamplingForm", "Frequency penalty"),
        QT_TRANSLATE_NOOP("SamplingForm", "Discourages words the more they were used."),
        -2.0,
        2.0,
        0.1,
        2,
    ),
)
PRESETS = {
    "precise": (
        QT_TRANSLATE_NOOP("SamplingForm", "Precise"),
        SamplingParams(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0),
    ),
    "balanced": (QT_TRANSLATE_NOOP("SamplingForm", "Balanced"), SamplingParams()),
    "lively": (
        QT_TRANSLATE_NOOP("SamplingForm", "Lively"),
        SamplingParams(temperature=1.1, top_k=0, top_p=1.0, min_p=0.05),
    ),
}


class SamplingForm(QWidget):
    """Shows and edits one SamplingParams."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._kept = SamplingParams()
        self.boxes = {number.name: _box(number) for number in NUMBERS}
        self.seed = QLineEdit()
        self.seed.setPlaceholderText(self.tr("random"))
        self.seed.setAccessibleName(self.tr("Seed"))
        self.presets = {name: QPushButton(_tr(text)) for name, (text, _) in PRESETS.items()}
        self._build()
        for box in self.boxes.values():
            box.valueChanged.connect(self._edited)
        self.seed.textChanged.connect(self._edited)

    def value(self) -> SamplingParams:
        """Return what the fields say."""
        fields: dict[str, Any] = {name: box.value() for name, box in self.boxes.items()}
        text = self.seed.text().strip()
        fields["seed"] = min(int(text), 2**63 - 1) if text.isdecimal() else None
        fields["top_k"] = int(fields["top_k"])
        return replace(self._kept, **fields)

    def set_value(self, params: SamplingParams) -> None:
        """Show these values; those that have no field are kept."""
        self._kept = params
        for name, box in self.boxes.items():
            box.setValue(getattr(params, name))
        self.seed.setText("" if params.seed is None else str(params.seed))
        self._edited()

    def _build(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        row = QHBoxLayout()
        row.setSpacing(8)
        group = QButtonGroup(self)
        for name, button in self.presets.items():
            button.setCheckable(True)
            button.setAutoDefault(False)
            button.setProperty("kind", "segment")
            button.clicked.connect(partial(self._choose, name))
            group.addButton(button)
            row.addWidget(button)
        row.addStretch()
        column.addLayout(row)
        column.addLayout(self._build_grid())

    def _build_grid(self) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(8)
        grid.setColumnStretch(2, 1)
        for place, number in enumerate(NUMBERS):
            self._add_row(grid, place, _tr(number.text), self.boxes[number.name])
            grid.addWidget(_faint(_tr(number.sentence)), place, 2)
        place = len(NUMBERS)
        self._add_row(grid, place, self.tr("Seed"), self.seed)
        grid.addWidget(_faint(self.tr("The same seed gives the same reply again.")), place, 2)
        return grid

    def _add_row(self, grid: QGridLayout, place: int, text: str, field: QWidget) -> None:
        field.setFixedWidth(152)
        grid.addWidget(QLabel(text), place, 0, Qt.AlignmentFlag.AlignVCenter)
        grid.addWidget(field, place, 1)

    def _choose(self, name: str) -> None:
        self.set_value(replace(PRESETS[name][1], seed=self.value().seed))

    def _edited(self) -> None:
        value = replace(self.value(), seed=None)
        group = next(iter(self.presets.values())).group()
        group.setExclusive(False)
        for name, button in self.presets.items():
            button.setChecked(PRESETS[name][1] == value)
        group.setExclusive(True)
        self.changed.emit()


def _box(number: Number) -> QDoubleSpinBox:
    box = QDoubleSpinBox(decimals=number.decimals, singleStep=number.step)
    box.setRange(number.low, number.high)
    box.setAccessibleName(_tr(number.text))
    box.setAccessibleDescription(_tr(number.sentence))
    return box


def _tr(text: object) -> str:
    return QCoreApplication.translate("SamplingForm", str(text))


def _faint(text: str) -> QLabel:
    label = QLabel(text, wordWrap=True)
    label.setProperty("role", "faint")
    return label
