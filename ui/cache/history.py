"""What every conversation costs on disk, and how to get the room back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, QTimer, Slot
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from ui.background import Background
from ui.elided import ElidedLabel
from ui.formats import ago_text, count_text, size_text
from ui.icons import icon
from ui.theme import Theme, number_font

if TYPE_CHECKING:
    from app.cache_use import StoredConversation
    from app.services import Services
    from app.store.kv_store import KVStore

NUM_SHOWN = 6
REFRESH_MS = 2000
_FLUSH_S = 60.0


@dataclass(frozen=True, slots=True)
class Freed:
    """Bytes that the disk has really got back."""

    num_bytes: int


class HistorySection(QWidget):
    """Biggest first. Reads both databases beside the window, and only while it is in view."""

    def __init__(self, services: Services, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._services = services
        self._theme = theme
        self._zoom = 1.0
        self._uses: list[StoredConversation] = []
        self._is_unfolded = False
        self._reads = Background("history", self)
        self._reads.finished.connect(self._show_uses)
        self._reads.failed.connect(self._say)
        self._work = Background("cache-work", self)
        self._work.finished.connect(self._worked)
        self._work.failed.connect(self._say)
        self._timer = QTimer(self, interval=REFRESH_MS, singleShot=True)
        self._timer.timeout.connect(self.refresh)
        self._used_bytes = -1
        self._build()
        self.retranslate()

    def note_size(self, used_bytes: int) -> None:
        """Read again a moment after the store has grown or shrunk."""
        if used_bytes != self._used_bytes and not self._timer.isActive():
            self._used_bytes = used_bytes
            self._timer.start()

    @Slot()
    def refresh(self) -> None:
        """Read what is stored, if anyone can see it."""
        if self.isVisible():
            self._reads.start(partial(_read, self._services))

    def free(self, conversation_id: str) -> None:
        """Drop what is stored of one conversation; its text stays."""
        self._start(partial(_free, self._services.kv, conversation_id))

    @Slot()
    def free_all(self) -> None:
        """Drop everything that is stored; the texts stay."""
        self._start(lambda: Freed(self._services.kv.clear()))

    @Slot()
    def check(self) -> None:
        """Read every block and drop the damaged ones."""
        self._start(self._services.kv.verify)

    @Slot()
    def compact(self) -> None:
        """Give free pages of the file back to the disk."""
        self._start(self._services.kv.compact)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self._theme, self._zoom = theme, zoom
        self._show_rows()

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        self._free_all.setText(self.tr("Free all"))
        self._free_all.setToolTip(
            self.tr("Forgets what the models have read. The conversations themselves stay.")
        )
        self._check.setText(self.tr("Check"))
        self._check.setToolTip(self.tr("Reads everything once and drops what is damaged."))
        self._compact.setText(self.tr("Shrink the file"))
        self._show_rows()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start(0)

    def _build(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        self._rows = QVBoxLayout()
        self._rows.setSpacing(0)
        self._empty = QLabel(wordWrap=True)
        self._empty.setProperty("role", "faint")
        self._more = _link(self._toggle)
        self._answer = QLabel(wordWrap=True)
        self._answer.setProperty("role", "muted")
        self._answer.hide()
        self._free_all = _link(self.free_all)
        self._check = _link(self.check)
        self._compact = _link(self.compact)
        self._buttons = QWidget()
        row = QHBoxLayout(self._buttons)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(16)
        for button in (self._free_all, self._check, self._compact):
            row.addWidget(button)
        row.addStretch()
        column.addWidget(self._empty)
        column.addLayout(self._rows)
        column.addWidget(self._more, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(self._answer)
        column.addWidget(self._buttons)

    @Slot(object)
    def _show_uses(self, uses: list[StoredConversation]) -> None:
        self._uses = uses
        self._show_rows()

    def _show_rows(self) -> None:
        while item := self._rows.takeAt(0):
            if widget := item.widget():
                widget.hide()
                widget.deleteLater()
        shown = self._uses if self._is_unfolded else self._uses[:NUM_SHOWN]
        for use in shown:
            self._rows.addWidget(self._row(use))
        self._empty.setText(self.tr("Nothing is kept yet."))
        self._empty.setVisible(not self._uses)
        self._buttons.setVisible(bool(self._uses))
        self._more.setVisible(len(self._uses) > NUM_SHOWN)
        self._more.setText(
            self.tr("Show fewer")
            if self._is_unfolded
            else self.tr("Show all %n", "", len(self._uses))
        )

    def _row(self, use: StoredConversation) -> QWidget:
        widget = QWidget()
        row = QHBoxLayout(widget)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        title = use.title or (self.tr("New chat") if use.title == "" else self.tr("Deleted"))
        name = ElidedLabel(title)
        name.setToolTip(self._explanation(use, title))
        size = QLabel(size_text(use.own_bytes + use.shared_bytes))
        size.setProperty("role", "muted")
        size.setFont(number_font(self._zoom))
        away = QToolButton()
        away.setIcon(icon("x", self._theme.muted))
        away.setIconSize(QSize(14, 14))
        away.setFixedSize(QSize(28, 28))
        away.setToolTip(self.tr("Free {0}").format(size_text(use.own_bytes)))
        away.setAccessibleName(self.tr("Free what is kept of {0}").format(title))
        away.clicked.connect(partial(self.free, use.conversation_id))
        row.addWidget(name, 1)
        row.addWidget(size)
        row.addWidget(away)
        return widget

    def _explanation(self, use: StoredConversation, title: str) -> str:
        text = self.tr("{0}\n{1} tokens, {2} of its own, {3} shared with others, used {4}")
        return text.format(
            title,
            count_text(use.num_tokens),
            size_text(use.own_bytes),
            size_text(use.shared_bytes),
            ago_text(use.last_use),
        )

    @Slot()
    def _toggle(self) -> None:
        self._is_unfolded = not self._is_unfolded
        self._show_rows()

    def _start(self, call: Callable[[], object]) -> None:
        self._buttons.setEnabled(False)
        self._say(self.tr("A moment…"))
        self._work.start(call)

    @Slot(object)
    def _worked(self, result: object) -> None:
        self._say(self._result_words(result))
        self.refresh()

    def _result_words(self, result: object) -> str:
        from app.store.kv_store import Compacted, Verified

        if isinstance(result, Freed):
            return self.tr("{0} freed").format(size_text(max(0, result.num_bytes)))
        if isinstance(result, Compacted):
            spared = max(0, result.before_bytes - result.after_bytes)
            return self.tr("{0} given back, {1} in use").format(
                size_text(spared), size_text(result.after_bytes)
            )
        assert isinstance(result, Verified)
        if result.num_damaged:
            return self.tr("%n damaged block(s) dropped", "", result.num_damaged)
        text = self.tr("All {0} blocks are sound ({1})")
        return text.format(count_text(result.num_blocks), size_text(result.num_bytes))

    @Slot(str)
    def _say(self, words: str) -> None:
        self._answer.setText(words)
        self._answer.show()
        self._buttons.setEnabled(not self._work.is_running)


def _link(on_click: Callable[[], object]) -> QPushButton:
    button = QPushButton()
    button.setProperty("kind", "link")
    button.clicked.connect(on_click)
    return button


def _read(services: Services) -> list[StoredConversation]:
    from app.cache_use import stored_conversations

    return stored_conversations(services.kv, services.chats)


def _free(kv: KVStore, conversation_id: str) -> Freed:
    before = kv.used_bytes()
    kv.forget(conversation_id)
    kv.flush(_FLUSH_S)
    return Freed(before - kv.used_bytes())
