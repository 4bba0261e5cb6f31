"""What every read-only text widget of a message has in common."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QTextEdit

_PAGING = (
    Qt.Key.Key_PageUp,
    Qt.Key.Key_PageDown,
    Qt.Key.Key_Home,
    Qt.Key.Key_End,
    Qt.Key.Key_Escape,
)


def prepare_text(text: QTextEdit) -> None:
    """Make a text widget a part of the page: no frame, no scrolling, no undo."""
    text.setReadOnly(True)
    text.setFrameShape(QFrame.Shape.NoFrame)
    text.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    text.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    text.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
    text.document().setDocumentMargin(0)
    text.document().setUndoRedoEnabled(False)
    text.viewport().setAutoFillBackground(False)
    # Text begins at the upper left corner, so growing exposes only what is new.
    text.setAttribute(Qt.WidgetAttribute.WA_StaticContents)
    text.viewport().setAttribute(Qt.WidgetAttribute.WA_StaticContents)
    text.setTabChangesFocus(True)
    text.setTextInteractionFlags(
        Qt.TextInteractionFlag.TextBrowserInteraction
        | Qt.TextInteractionFlag.TextSelectableByKeyboard
    )


def leave_to_parent(event: QKeyEvent) -> bool:
    """Ignore a key that pages the conversation; tell whether it was one."""
    is_paging = event.key() in _PAGING and not event.modifiers() & (
        Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.ControlModifier
    )
    if is_paging:
        event.ignore()
    return is_paging
