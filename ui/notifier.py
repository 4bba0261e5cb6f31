"""Tells that a long reply has ended while the person looks at another window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget

from app.conversation import Message, MessageStatus
from app.events import ReplyFinished
from ui.bridge import Bridge

if TYPE_CHECKING:
    from app.services import Services

LONG_MS = 8_000
SHOWN_MS = 10_000
_MAX_WORDS = 120


class Notifier(QObject):
    """Marks the window in the task bar; where the system shows messages, sends one too."""

    def __init__(self, services: Services, bridge: Bridge, window: QWidget) -> None:
        super().__init__(window)
        self._services = services
        self._window = window
        self._tray: QSystemTrayIcon | None = None
        self._away = QTimer(self, interval=SHOWN_MS, singleShot=True)
        self._away.timeout.connect(self._put_away)
        self.last = ""
        bridge.reply_finished.connect(self._finished)

    @Slot(ReplyFinished)
    def _finished(self, event: ReplyFinished) -> None:
        message = event.message
        is_wanted = self._services.settings.value.notify_when_done
        if is_wanted and is_long(message) and QGuiApplication.focusWindow() is None:
            self._tell(message)

    def _tell(self, message: Message) -> None:
        title = self._services.chat.conversation(message.conversation_id).title or "Reprise"
        self.last = title
        QApplication.alert(self._window.window())
        if not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._tray is None:
            self._tray = QSystemTrayIcon(QGuiApplication.windowIcon(), self)
            self._tray.messageClicked.connect(self._come_forward)
        words = " ".join(message.content.split())[:_MAX_WORDS]
        self._tray.show()
        self._tray.showMessage(title, words, QGuiApplication.windowIcon(), SHOWN_MS)
        self._away.start()

    @Slot()
    def _come_forward(self) -> None:
        window = self._window.window()
        window.raise_()
        window.activateWindow()

    @Slot()
    def _put_away(self) -> None:
        if self._tray is not None:
            self._tray.hide()


def is_long(message: Message) -> bool:
    """Tell whether someone may have gone elsewhere while a reply was written."""
    if message.status in (MessageStatus.STOPPED, MessageStatus.ERROR) or message.stats is None:
        return False
    timing = message.stats.timing
    rate = timing.decode_tokens_per_second
    decode_ms = message.stats.usage.completion_tokens / rate * 1000 if rate > 0 else 0.0
    return timing.first_token_ms + decode_ms >= LONG_MS
