"""Text files that go along with a message: read, checked, and shown as chips."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QCoreApplication, Signal
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from ui.chat.look import Look
from ui.chat.parts import RoundedField, icon_button, quiet_label
from ui.chat.user_text import fenced
from ui.formats import size_text

translate = QCoreApplication.translate

MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that was read."""

    name: str
    content: str

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return len(self.content.encode())


class AttachmentError(Exception):
    """A file cannot go along; the message says why in plain words."""


def read_attachment(path: Path) -> Attachment:
    """Read a text file.

    Raises: AttachmentError when it is missing, too large, or no text.
    """
    try:
        if path.is_dir():
            raise AttachmentError(translate("Attachments", "“{0}” is a folder").format(path.name))
        if path.stat().st_size > MAX_BYTES:
            raise AttachmentError(
                translate("Attachments", "“{0}” is larger than 1 MB").format(path.name)
            )
        data = path.read_bytes()
    except OSError as error:
        reason = translate("Attachments", "“{0}” cannot be read: {1}").format(
            path.name, error.strerror or ""
        )
        raise AttachmentError(reason) from error
    return Attachment(path.name, _decode(data, path.name))


def with_attachments(text: str, attachments: list[Attachment]) -> str:
    """Return a message with its files as fenced blocks after the words."""
    blocks = [fenced(attachment.name, attachment.content) for attachment in attachments]
    return "\n\n".join([*([text] if text.strip() else []), *blocks])


class AttachmentRow(QWidget):
    """The chips above the field; each can be taken away again."""

    changed = Signal()

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._attachments: list[Attachment] = []
        self._layout = QHBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(6)
        self.hide()

    @property
    def attachments(self) -> list[Attachment]:
        """The files, in order."""
        return list(self._attachments)

    def add(self, attachment: Attachment) -> None:
        """Add a file."""
        self._attachments.append(attachment)
        self._rebuild()

    def clear(self) -> None:
        """Take all files away."""
        if self._attachments:
            self._attachments.clear()
            self._rebuild()

    def set_look(self, look: Look) -> None:
        """Change theme or zoom."""
        self._look = look
        self._rebuild()

    def _remove(self, attachment: Attachment) -> None:
        self._attachments.remove(attachment)
        self._rebuild()

    def _rebuild(self) -> None:
        while (item := self._layout.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for attachment in self._attachments:
            self._layout.addWidget(self._chip(attachment))
        self._layout.addStretch(1)
        self.setVisible(bool(self._attachments))
        self.changed.emit()

    def _chip(self, attachment: Attachment) -> QWidget:
        chip = RoundedField(self._look, self, fill="control", radius=6)
        layout = QHBoxLayout(chip)
        layout.setContentsMargins(10, 2, 2, 2)
        layout.setSpacing(6)
        layout.addWidget(quiet_label(self._look, attachment.name, role="text", parent=chip))
        size = size_text(attachment.num_bytes)
        layout.addWidget(quiet_label(self._look, size, role="muted", parent=chip))
        layout.addWidget(self._remove_button(attachment, chip))
        return chip

    def _remove_button(self, attachment: Attachment, chip: QWidget) -> QToolButton:
        label = translate("Attachments", "Remove {0}").format(attachment.name)
        button = icon_button(self._look, "x", label, lambda: self._remove(attachment), parent=chip)
        button.setFixedSize(self._look.px(24), self._look.px(24))
        return button


def _decode(data: bytes, name: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        if b"\0" in data:
            raise AttachmentError(translate("Attachments", "“{0}” is not a text file").format(name))
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _decode_legacy(data, name)


def _decode_legacy(data: bytes, name: str) -> str:
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError as error:
        raise AttachmentError(
            translate("Attachments", "“{0}” is not a text file").format(name)
        ) from error
