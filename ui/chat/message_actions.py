"""What can be done with a message: small buttons beside it, and the same as a menu."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from PySide6.QtCore import QCoreApplication, QPoint, QRect, Signal
from PySide6.QtWidgets import QBoxLayout, QMenu, QWidget

from app.conversation import MessageStatus
from ui.chat.look import Look
from ui.chat.message_model import Row
from ui.chat.parts import icon_button
from ui.icons import icon

translate = QCoreApplication.translate


class Action(StrEnum):
    """What a person can do with a message."""

    COPY = "copy"
    COPY_PLAIN = "copy_plain"
    COPY_SELECTION = "copy_selection"
    EDIT = "edit"
    REGENERATE = "regenerate"
    CONTINUE = "continue"
    PIN = "pin"
    UNPIN = "unpin"
    DELETE = "delete"


_ICONS = {
    Action.COPY: "copy",
    Action.EDIT: "pencil",
    Action.REGENERATE: "refresh-cw",
    Action.CONTINUE: "corner-down-right",
    Action.DELETE: "trash-2",
}
_MENU_ICONS = {Action.PIN: "pin", Action.UNPIN: "pin-off"}


def actions_for(row: Row) -> tuple[Action, ...]:
    """Return what can be done with a message, in the order it is shown."""
    if row.is_live:
        return (Action.COPY,)
    if row.message.status is MessageStatus.ASKING:
        return (Action.COPY,) if row.message.content else ()
    if row.is_user:
        return (Action.COPY, Action.EDIT, Action.DELETE)
    extra = (Action.CONTINUE,) if row.is_last else ()
    return (Action.COPY, Action.REGENERATE, *extra, Action.EDIT, Action.DELETE)


class MessageActions(QWidget):
    """One strip of buttons for the whole view; it moves to the message under the mouse."""

    triggered = Signal(str, str)

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._message_id = ""
        self._layout = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(0)
        self._buttons = {action: self._button(action) for action in _ICONS}
        self.hide()

    @property
    def message_id(self) -> str:
        """The message that the buttons act on."""
        return self._message_id

    def show_for(self, row: Row, anchor: QRect, area: QRect) -> None:
        """Appear beside a message: left of a person's field, right of a model's text."""
        self._message_id = row.message.id
        offered = actions_for(row)
        if not offered:
            self.hide()
            return
        for action, button in self._buttons.items():
            button.setVisible(action in offered)
        side = QBoxLayout.Direction
        self._layout.setDirection(side.LeftToRight if row.is_user else side.TopToBottom)
        size = self._look.px(28)
        length = size * len(offered)
        self.resize(length, size) if row.is_user else self.resize(size, length)
        self.move(self._place(anchor, area, is_user=row.is_user))
        self.show()
        self.raise_()

    def set_prices(self, prices: Mapping[Action, str]) -> None:
        """Say, for each action that has one, what it costs."""
        for action, button in self._buttons.items():
            words = prices.get(action, "")
            button.setToolTip("\n".join(filter(None, (label_of(action), words))))
            button.setAccessibleDescription(words)

    def _place(self, anchor: QRect, area: QRect, *, is_user: bool) -> QPoint:
        if is_user:
            return QPoint(anchor.left() - self.width() - 8, anchor.top() + 6)
        # A long reply scrolls; its buttons stay where they can be reached.
        top = max(anchor.top() - 3, area.top() + 8)
        top = min(top, area.bottom() - self.height() - 8)
        return QPoint(anchor.right() + self._look.px(10), top)

    def _button(self, action: Action) -> QWidget:
        button = icon_button(
            self._look,
            _ICONS[action],
            label_of(action),
            lambda: self.triggered.emit(self._message_id, action.value),
            parent=self,
        )
        self._layout.addWidget(button)
        return button


def message_menu(look: Look, row: Row, parent: QWidget, *, selected: str) -> QMenu:
    """Return the menu of a message; each entry's data is its Action."""
    menu = QMenu(parent)
    offered = list(actions_for(row))
    if not offered:
        return menu
    offered.insert(1, Action.COPY_PLAIN)
    if Action.DELETE in offered:
        pin = Action.UNPIN if row.message.is_pinned else Action.PIN
        offered.insert(-1, pin)
    if selected:
        offered.insert(0, Action.COPY_SELECTION)
    for action in offered:
        if action is Action.DELETE:
            menu.addSeparator()
        entry = menu.addAction(label_of(action, is_menu=True))
        entry.setData(action.value)
        name = {**_ICONS, **_MENU_ICONS}.get(action)
        if name:
            entry.setIcon(icon(name, look.theme.muted))
    return menu


def label_of(action: Action, *, is_menu: bool = False) -> str:
    """Return the name of an action."""
    if is_menu and action is Action.COPY:
        return translate("MessageActions", "Copy as Markdown")
    return {
        Action.COPY: translate("MessageActions", "Copy"),
        Action.COPY_PLAIN: translate("MessageActions", "Copy as plain text"),
        Action.COPY_SELECTION: translate("MessageActions", "Copy selection"),
        Action.EDIT: translate("MessageActions", "Edit"),
        Action.REGENERATE: translate("MessageActions", "Regenerate"),
        Action.CONTINUE: translate("MessageActions", "Continue"),
        Action.PIN: translate("MessageActions", "Keep when the context is full"),
        Action.UNPIN: translate("MessageActions", "Keep no longer"),
        Action.DELETE: translate("MessageActions", "Delete"),
    }[action]
