"""One setting: what it is called, what it does, what was chosen, what is in force."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal, Slot
from PySide6.QtGui import QStandardItemModel, QWheelEvent
from PySide6.QtWidgets import (
    QComboBox,
    QHBoxLayout,
    QLabel,
    QSizePolicy,
    QSlider,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from ui.cache.choices import Choice
from ui.icons import icon
from ui.switch import Switch
from ui.theme import Theme, number_font


class SettingRow(QWidget):
    """Frame of a setting; subclasses bring the control. Only the user's changes are emitted."""

    chosen = Signal(object)
    reset = Signal()

    def __init__(self, theme: Theme, *, needs_reload: bool = False) -> None:
        super().__init__()
        self.title = QLabel()
        self.sentence = QLabel(wordWrap=True)
        self.sentence.setProperty("role", "faint")
        self.effective = QLabel()
        self.effective.setProperty("role", "faint")
        self.tag = QLabel()
        self.tag.setProperty("role", "tag")
        self.tag.setVisible(needs_reload)
        self.reset_button = QToolButton()
        self.reset_button.setIconSize(QSize(14, 14))
        self.reset_button.setFixedSize(24, 24)
        self.reset_button.clicked.connect(self.reset)
        keeps_room = self.reset_button.sizePolicy()
        keeps_room.setRetainSizeWhenHidden(True)
        self.reset_button.setSizePolicy(keeps_room)
        self.layout_ = QVBoxLayout(self)
        self.layout_.setContentsMargins(0, 0, 0, 0)
        self.layout_.setSpacing(4)
        self.head = self._build_head()
        self.layout_.addLayout(self.head)
        self.apply_theme(theme, 1.0)

    def set_texts(self, title: str, sentence: str, *, tag: str, reset: str) -> None:
        """Write the texts in the language of the moment."""
        self.title.setText(title)
        self.sentence.setText(sentence)
        self.tag.setText(tag)
        self.reset_button.setToolTip(reset)
        self.reset_button.setAccessibleName(f"{reset}: {title}")
        self.control().setAccessibleName(title)
        self.control().setAccessibleDescription(sentence)

    def set_effective(self, text: str) -> None:
        """Show the value in force; "" where it is the one chosen or unknown."""
        self.effective.setText(text)
        self.effective.setVisible(bool(text))

    def set_unavailable(self, reason: str) -> None:
        """Disable with a reason, or enable with ""."""
        self.control().setEnabled(not reason)
        self.setToolTip(reason)

    def set_is_default(self, is_default: bool) -> None:
        """Offer the way back only where there is one."""
        self.reset_button.setVisible(not is_default)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self.reset_button.setIcon(icon("rotate-ccw", theme.muted))

    def control(self) -> QWidget:
        """Return the widget that holds the value."""
        raise NotImplementedError

    def _build_head(self) -> QHBoxLayout:
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self.title)
        head.addWidget(self.tag, 0, Qt.AlignmentFlag.AlignVCenter)
        head.addStretch()
        head.addWidget(self.reset_button)
        return head


class SwitchRow(SettingRow):
    """On or off."""

    def __init__(self, theme: Theme, *, needs_reload: bool = False) -> None:
        self.switch = Switch(theme)
        super().__init__(theme, needs_reload=needs_reload)
        self.head.addWidget(self.switch)
        self.layout_.addWidget(self.sentence)
        self.switch.clicked.connect(self._clicked)

    def set_value(self, value: object) -> None:
        """Show a value."""
        self.switch.setChecked(bool(value))

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        super().apply_theme(theme, zoom)
        self.switch.apply_theme(theme)

    def control(self) -> QWidget:
        return self.switch

    @Slot(bool)
    def _clicked(self, is_on: bool) -> None:
        self.chosen.emit(is_on)


class ChoiceRow(SettingRow):
    """One of a few values; those that cannot be had say why."""

    def __init__(self, theme: Theme, *, needs_reload: bool = False) -> None:
        self.combo = QComboBox()
        self.combo.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.combo.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        super().__init__(theme, needs_reload=needs_reload)
        self._wheel = IgnoreWheel(self.combo)
        self._choices: list[Choice] = []
        line = QHBoxLayout()
        line.setSpacing(8)
        line.addWidget(self.combo, 1)
        line.addWidget(self.effective)
        self.layout_.addLayout(line)
        self.layout_.addWidget(self.sentence)
        self.combo.activated.connect(self._activated)

    def set_choices(self, choices: Sequence[Choice], value: object) -> None:
        """Offer these values and show the one chosen, even if it is not among them."""
        self._choices = list(choices)
        if value not in [choice.value for choice in choices]:
            self._choices.append(Choice(value, str(value)))
        self.combo.clear()
        model = self.combo.model()
        assert isinstance(model, QStandardItemModel)
        for place, choice in enumerate(self._choices):
            self.combo.addItem(choice.text)
            item = model.item(place)
            item.setEnabled(not choice.reason)
            item.setToolTip(choice.reason or choice.text)
        self.combo.setCurrentIndex([choice.value for choice in self._choices].index(value))

    def control(self) -> QWidget:
        return self.combo

    @Slot(int)
    def _activated(self, place: int) -> None:
        self.chosen.emit(self._choices[place].value)


class SliderRow(SettingRow):
    """A budget: steps on a slider, the chosen one in words above it."""

    def __init__(self, theme: Theme, *, needs_reload: bool = False) -> None:
        self.slider = QSlider(Qt.Orientation.Horizontal)
        self.slider.setPageStep(1)
        self.words = QLabel(wordWrap=True)
        super().__init__(theme, needs_reload=needs_reload)
        self._wheel = IgnoreWheel(self.slider)
        self._choices: list[Choice] = []
        line = QHBoxLayout()
        line.addWidget(self.words, 1)
        line.addWidget(self.effective)
        self.layout_.addLayout(line)
        self.layout_.addWidget(self.slider)
        self.layout_.addWidget(self.sentence)
        self.slider.valueChanged.connect(self._show_words)
        self.slider.sliderReleased.connect(self._settle)
        self.slider.actionTriggered.connect(self._keyed)

    def set_choices(self, choices: Sequence[Choice], value: object) -> None:
        """Offer these steps; a value between two steps shows as the next larger one."""
        if self.slider.isSliderDown():
            return
        self._choices = list(choices)
        self.slider.setRange(0, len(choices) - 1)
        places = [i for i, choice in enumerate(choices) if _reaches(choice.value, value)]
        self.slider.setValue(places[0] if places else len(choices) - 1)
        self._show_words(self.slider.value())

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        super().apply_theme(theme, zoom)
        self.words.setFont(number_font(zoom, pixels=13))

    def control(self) -> QWidget:
        return self.slider

    @Slot(int)
    def _show_words(self, place: int) -> None:
        if place < len(self._choices):
            self.words.setText(self._choices[place].text)

    @Slot(int)
    def _keyed(self, action: int) -> None:
        if not self.slider.isSliderDown():
            self._emit_at(self.slider.sliderPosition())

    @Slot()
    def _settle(self) -> None:
        self._emit_at(self.slider.value())

    def _emit_at(self, place: int) -> None:
        self.chosen.emit(self._choices[place].value)


class IgnoreWheel(QObject):
    """Lets the wheel scroll the panel rather than change a value by accident."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        widget.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QWheelEvent) and event.type() == QEvent.Type.Wheel:
            event.ignore()
            return True
        return super().eventFilter(watched, event)


def _reaches(step: object, value: object) -> bool:
    if step is None or value is None:
        return step is value
    assert isinstance(step, int)
    assert isinstance(value, int)
    return step >= value
