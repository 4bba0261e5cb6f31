"""The conversation: a tall column of which only the rows near the viewport are widgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from PySide6.QtCore import QEvent, QRect, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QAbstractScrollArea, QAbstractSlider, QWidget

from ui.chat.estimate import estimated_heights
from ui.chat.height_index import HeightIndex
from ui.chat.jump_button import JumpButton
from ui.chat.look import COLUMN_PX, Look
from ui.chat.message_actions import Action, MessageActions
from ui.chat.message_model import MessageModel, Row
from ui.chat.message_widget import GUTTER_PX, MessageWidget

FOLLOW_PX = 100
GAP_PX = 28
TOP_PX = 28
BOTTOM_PX = 40
# Rows this far outside the viewport are made when the window is idle, and let go at twice that.
NEAR_PX = 700
_STEP_PX = 40


class MessageView(QAbstractScrollArea):
    """Shows a MessageModel; follows the reply only while the person is at the end."""

    action_triggered = Signal(str, str)
    menu_requested = Signal(str, object)
    edit_saved = Signal(str, str)
    edit_cancelled = Signal(str)
    version_requested = Signal(str, int)
    continue_requested = Signal(str)
    retry_requested = Signal(str)
    question_answered = Signal(str, str, bool)
    scrolled = Signal()

    def __init__(self, model: MessageModel, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model, self._look = model, look
        self._widgets: dict[str, MessageWidget] = {}
        self._heights = HeightIndex(look.px(GAP_PX))
        self._is_following = True
        self._is_placing = False
        self._prices: Callable[[str], Mapping[Action, str]] = lambda key: {}
        self._column = 0
        self.setAccessibleName(self.tr("Conversation"))
        # An opaque viewport lets Qt move the pixels it has when a line is added at the end.
        self.viewport().setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)
        self._actions = MessageActions(look, self.viewport())
        self._actions.triggered.connect(self.action_triggered)
        self._jump = JumpButton(look, self)
        self._jump.clicked.connect(self.jump_to_latest)
        self._idle = QTimer(self, singleShot=True, interval=0)
        self._idle.timeout.connect(self._make_near_row)
        self.verticalScrollBar().actionTriggered.connect(self._on_scroll_action)
        model.reset.connect(self._on_reset)
        model.changed.connect(self._on_changed)

    # What others ask.

    @property
    def is_following(self) -> bool:
        """Tell whether the end of the conversation is kept in view."""
        return self._is_following

    @property
    def is_settled(self) -> bool:
        """Tell whether no idle work is left."""
        return not self._idle.isActive()

    @property
    def num_widgets(self) -> int:
        """Messages that are widgets now."""
        return len(self._widgets)

    def widget_of(self, message_id: str) -> MessageWidget | None:
        """Return the widget of a message, if it is near the viewport."""
        return self._widgets.get(message_id)

    def row_span(self, row: int) -> tuple[int, int]:
        """Return the upper and lower edge of a row in the viewport, in pixels."""
        top = self._heights.top(row) + self._look.px(TOP_PX) - self.verticalScrollBar().value()
        return top, top + self._heights.height(row)

    def column_rect(self) -> QRect:
        """Return the column of messages in the viewport; the scroll bar does not move it."""
        left = (self.width() - self._column) // 2
        return QRect(left, 0, self._column, self.viewport().height())

    def jump_to_latest(self) -> None:
        """Go to the end and stay there."""
        self._is_following = True
        self._layout()

    def set_prices(self, prices: Callable[[str], Mapping[Action, str]]) -> None:
        """Ask this, when the mouse is over a message, what changing it would cost."""
        self._prices = prices

    def show_message(self, message_id: str) -> None:
        """Bring a message into view."""
        place = self._model.place_of(message_id)
        if place is None:
            return
        self._is_following = False
        self._set_scroll(self._heights.top(place))
        self._layout()

    def show_edit(self, message_id: str) -> None:
        """Bring the open editor of a message into view and put the cursor there."""
        self._actions.hide()
        place = self._model.place_of(message_id)
        if place is None:
            return
        top, bottom = self.row_span(place)
        if top < 0 or bottom > self.viewport().height():
            self.show_message(message_id)
        widget = self._widgets.get(message_id)
        if widget is not None and widget.editor is not None:
            widget.editor.editor.setFocus()

    def set_look(self, look: Look) -> None:
        """Change theme or zoom: widgets are made anew, the place in the text is kept."""
        self._look = look
        self._drop_widgets(list(self._widgets))
        self._actions.deleteLater()
        self._actions = MessageActions(look, self.viewport())
        self._actions.triggered.connect(self.action_triggered)
        self._jump.set_look(look)
        self._heights.gap = look.px(GAP_PX)
        self._column = 0
        self._layout()

    # What the model and the person do.

    def _on_reset(self, first: int) -> None:
        gone = [key for key in self._widgets if self._model.place_of(key) is None]
        self._drop_widgets(gone)
        for row in self._model.rows[:first]:
            self._refresh(row)
        self._actions.hide()
        self._heights.reset(self._estimates(first), first)
        if first == 0:
            self._is_following = True
        self._layout()

    def _on_changed(self, index: int) -> None:
        row = self._model.rows[index]
        widget = self._widgets.get(row.message.id)
        if widget is None:
            self._heights.set_height(index, self._estimates(index)[0])
            self._layout()
            return
        widget.set_row(row)
        if self._heights.set_height(index, widget.fit(self._column)):
            self._layout()
        else:
            widget.place()

    def _on_scroll_action(self, action: int) -> None:
        bar = self.verticalScrollBar()
        if bar.sliderPosition() < bar.value():
            self._is_following = False
        elif action != QAbstractSlider.SliderAction.SliderNoAction.value:
            self._is_following = bar.maximum() - bar.sliderPosition() <= FOLLOW_PX

    def scrollContentsBy(self, dx: int, dy: int) -> None:
        """Move the rows; called by the scroll bar."""
        self.viewport().scroll(0, dy)
        if not self._is_placing:
            self._layout(is_scroll=True)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the page below the messages."""
        painter = QPainter(self.viewport())
        painter.fillRect(event.rect(), self._look.color("page"))
        painter.end()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Page through the conversation."""
        steps = (
            (QKeySequence.StandardKey.MoveToPreviousPage, "SliderPageStepSub"),
            (QKeySequence.StandardKey.MoveToNextPage, "SliderPageStepAdd"),
            (QKeySequence.StandardKey.MoveToPreviousLine, "SliderSingleStepSub"),
            (QKeySequence.StandardKey.MoveToNextLine, "SliderSingleStepAdd"),
            (QKeySequence.StandardKey.MoveToStartOfLine, "SliderToMinimum"),
            (QKeySequence.StandardKey.MoveToEndOfLine, "SliderToMaximum"),
        )
        for key, action in steps:
            if event.matches(key):
                self.verticalScrollBar().triggerAction(QAbstractSlider.SliderAction[action])
                return
        event.ignore()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Lay the column out in the new width."""
        super().resizeEvent(event)
        self._layout()

    def leaveEvent(self, event: QEvent) -> None:
        """Take the actions away when the mouse leaves."""
        self._actions.hide()
        super().leaveEvent(event)

    def _on_hovered(self, message_id: str) -> None:
        row, widget = self._model.row_of(message_id), self._widgets.get(message_id)
        if row is None or widget is None or row.edit_text is not None:
            self._actions.hide()
            return
        anchor = widget.anchor_rect().translated(widget.pos())
        self._actions.show_for(row, anchor, self.viewport().rect())
        self._actions.set_prices(self._prices(message_id))

    # Layout.

    def _layout(self, *, is_scroll: bool = False) -> None:
        """Make, measure and place the visible rows; keep what the person looks at in place."""
        if self._is_placing or not self.viewport().height():
            return
        with self._placing():
            self._take_width()
            if self._model.rows:
                self._settle()
                self._place_widgets()
            self._set_range()
        if is_scroll:
            self._actions.hide()
        self._jump.set_shown(is_shown=self._distance_to_end() > FOLLOW_PX)
        self._idle.start()
        self.scrolled.emit()

    def _settle(self) -> None:
        # Measuring a row can bring another one into view, so this goes on until nothing moves.
        for _ in range(8):
            anchor, offset = self._anchor()
            is_stable = not any([self._measure(row) for row in self._visible_rows()])
            self._set_range()
            if self._is_following:
                self._set_scroll(self.verticalScrollBar().maximum())
            elif not is_stable:
                self._set_scroll(self._heights.top(anchor) + offset)
            if is_stable and not self._has_unmade_rows():
                return

    def _anchor(self) -> tuple[int, int]:
        """Return the first visible row and how far it is scrolled past its upper edge."""
        y = self.verticalScrollBar().value()
        row = self._heights.row_at(max(0, y - self._look.px(TOP_PX)))
        return row, y - self._heights.top(row)

    def _visible_rows(self, margin: int = 0) -> range:
        top = self.verticalScrollBar().value() - self._look.px(TOP_PX) - margin
        bottom = top + self.viewport().height() + 2 * margin
        return range(self._heights.row_at(top), self._heights.row_at(bottom) + 1)

    def _has_unmade_rows(self) -> bool:
        rows = self._model.rows
        return any(rows[index].message.id not in self._widgets for index in self._visible_rows())

    def _measure(self, index: int) -> bool:
        """Make and fit a row; tell whether its height was another one."""
        row = self._model.rows[index]
        widget = self._widgets.get(row.message.id) or self._make(row)
        return self._heights.set_height(index, widget.fit(self._column))

    def _make(self, row: Row) -> MessageWidget:
        widget = MessageWidget(self._look, row, self.viewport())
        widget.hovered.connect(self._on_hovered)
        widget.height_changed.connect(self._on_height_changed)
        widget.reasoning_toggled.connect(self._on_reasoning_toggled)
        widget.menu_requested.connect(self.menu_requested)
        widget.edit_saved.connect(self.edit_saved)
        widget.edit_cancelled.connect(self.edit_cancelled)
        widget.version_requested.connect(self.version_requested)
        widget.continue_requested.connect(self.continue_requested)
        widget.retry_requested.connect(self.retry_requested)
        widget.question_answered.connect(self.question_answered)
        widget.set_row(row)
        self._widgets[row.message.id] = widget
        return widget

    def _make_near_row(self) -> None:
        """Make one row just outside the viewport, so that scrolling finds it ready."""
        near = self._visible_rows(NEAR_PX) if self._model.rows else range(0)
        for index in near:
            if self._model.rows[index].message.id not in self._widgets:
                with self._placing():
                    anchor, offset = self._anchor()
                    self._measure(index)
                    self._set_range()
                    self._set_scroll(self._heights.top(anchor) + offset)
                self._layout()
                return
        self._drop_far_widgets()

    def _drop_far_widgets(self) -> None:
        kept = self._visible_rows(2 * NEAR_PX) if self._model.rows else range(0)
        near = {self._model.rows[index].message.id for index in kept}
        focus = self.focusWidget() or self.window().focusWidget()
        far = [
            key
            for key, widget in self._widgets.items()
            if key not in near and not (focus and widget.isAncestorOf(focus))
        ]
        self._drop_widgets(far)

    def _drop_widgets(self, keys: list[str]) -> None:
        for key in keys:
            widget = self._widgets.pop(key)
            widget.hide()
            widget.deleteLater()

    def _place_widgets(self) -> None:
        gutter = self._look.px(GUTTER_PX)
        left = self.column_rect().left() - gutter
        width = self._column + 2 * gutter
        for key, widget in self._widgets.items():
            index = self._model.place_of(key)
            if index is None:
                continue
            top, bottom = self.row_span(index)
            widget.setGeometry(left, top, width, bottom - top)
            widget.place()
            if widget.isHidden():
                widget.show()

    def _take_width(self) -> None:
        room = self.width() - 2 * self._look.px(GUTTER_PX)
        column = max(200, min(self._look.px(COLUMN_PX), room))
        if column == self._column:
            return
        anchor, offset = self._anchor() if self._model.rows else (0, 0)
        self._column = column
        self._heights.reset(self._estimates())
        for key, widget in self._widgets.items():
            index = self._model.place_of(key)
            if index is not None:
                self._heights.set_height(index, widget.fit(column))
        if self._model.rows:
            self._set_range()
            self._set_scroll(self._heights.top(anchor) + offset)

    def _refresh(self, row: Row) -> None:
        widget = self._widgets.get(row.message.id)
        if widget is not None:
            widget.set_row(row)

    def _on_height_changed(self, message_id: str) -> None:
        index, widget = self._model.place_of(message_id), self._widgets.get(message_id)
        if index is None or widget is None or self._is_placing:
            return
        self._heights.set_height(index, widget.fit(self._column))
        self._layout()

    def _on_reasoning_toggled(self, message_id: str, is_open: bool) -> None:
        row = self._model.row_of(message_id)
        if row is not None:
            self._is_following = False
            row.is_reasoning_open = is_open
            self._model.touch(message_id)

    def _estimates(self, first: int = 0) -> list[int]:
        rows = self._model.rows[first:]
        return estimated_heights(rows, self._column or COLUMN_PX, self._look)

    # The scroll bar.

    @contextmanager
    def _placing(self) -> Iterator[None]:
        self._is_placing = True
        try:
            yield
        finally:
            self._is_placing = False

    def _set_range(self) -> None:
        total = self._heights.total + self._look.px(TOP_PX) + self._look.px(BOTTOM_PX)
        page = self.viewport().height()
        bar = self.verticalScrollBar()
        bar.setRange(0, max(0, total - page))
        bar.setPageStep(int(page * 0.9))
        bar.setSingleStep(self._look.px(_STEP_PX))

    def _set_scroll(self, value: int) -> None:
        self.verticalScrollBar().setValue(value)

    def _distance_to_end(self) -> int:
        return self.verticalScrollBar().maximum() - self.verticalScrollBar().value()
