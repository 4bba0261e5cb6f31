"""The only crossing from the app's threads to Qt: events in on any thread, signals out on one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from PySide6.QtCore import QObject, Qt, QTimer, Signal, Slot

from app.events import (
    AppEvent,
    CacheChanged,
    ConversationChanged,
    Listener,
    ModelFailed,
    ModelLoaded,
    ModelLoading,
    ModelUnloaded,
    Notice,
    ReplyDelta,
    ReplyFinished,
    ReplyProgress,
    ReplyQueued,
    ReplyTrimmed,
    SharedStoreChanged,
)

DELTA_INTERVAL_MS = 33


class Bridge(QObject):
    """One signal per event type, in the order of the events, always on the GUI thread.

    Text pieces wait up to 33 ms and arrive merged per message; everything else, and the text
    before it, arrives with the next turn of the event loop.
    """

    model_loading = Signal(ModelLoading)
    model_loaded = Signal(ModelLoaded)
    model_unloaded = Signal(ModelUnloaded)
    model_failed = Signal(ModelFailed)
    reply_queued = Signal(ReplyQueued)
    reply_trimmed = Signal(ReplyTrimmed)
    reply_progress = Signal(ReplyProgress)
    reply_delta = Signal(ReplyDelta)
    reply_finished = Signal(ReplyFinished)
    conversation_changed = Signal(ConversationChanged)
    cache_changed = Signal(CacheChanged)
    shared_changed = Signal(SharedStoreChanged)
    notice = Signal(Notice)

    _woken = Signal()
    _text_waits = Signal()

    def __init__(
        self, subscribe: Callable[[Listener], Callable[[], None]], parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._events: deque[AppEvent] = deque()
        self._is_open = True
        self._is_armed = False
        self._timer = QTimer(self, interval=DELTA_INTERVAL_MS, singleShot=True)
        self._timer.timeout.connect(self._deliver)
        self._woken.connect(self._deliver, Qt.ConnectionType.QueuedConnection)
        self._text_waits.connect(self._timer.start, Qt.ConnectionType.QueuedConnection)
        self._signals = self._signals_by_type()
        self._unsubscribe = subscribe(self.receive)

    def receive(self, event: AppEvent) -> None:
        """Take an event on any thread; returns at once."""
        if not self._is_open:
            return
        self._events.append(event)
        if not isinstance(event, ReplyDelta):
            self._woken.emit()
        elif not self._is_armed:
            self._is_armed = True
            self._text_waits.emit()

    def close(self) -> None:
        """Stop listening and drop what has not been delivered."""
        if self._is_open:
            self._unsubscribe()
        self._is_open = False
        self._timer.stop()
        self._events.clear()

    @Slot()
    def _deliver(self) -> None:
        # Disarmed before the queue is read: a piece that arrives meanwhile arms the timer again.
        self._is_armed = False
        for event in merge_deltas(self._taken()):
            if self._is_open:
                self._signals[type(event)](event)

    def _taken(self) -> Iterator[AppEvent]:
        while self._events:
            yield self._events.popleft()

    def _signals_by_type(self) -> dict[type, Callable[[AppEvent], None]]:
        return {
            ModelLoading: self.model_loading.emit,
            ModelLoaded: self.model_loaded.emit,
            ModelUnloaded: self.model_unloaded.emit,
            ModelFailed: self.model_failed.emit,
            ReplyQueued: self.reply_queued.emit,
            ReplyTrimmed: self.reply_trimmed.emit,
            ReplyProgress: self.reply_progress.emit,
            ReplyDelta: self.reply_delta.emit,
            ReplyFinished: self.reply_finished.emit,
            ConversationChanged: self.conversation_changed.emit,
            CacheChanged: self.cache_changed.emit,
            SharedStoreChanged: self.shared_changed.emit,
            Notice: self.notice.emit,
        }


def merge_deltas(events: Iterable[AppEvent]) -> list[AppEvent]:
    """Join text pieces of one message and channel; the order around other events is kept."""
    result: list[AppEvent] = []
    last: dict[str, int] = {}
    for event in events:
        if not isinstance(event, ReplyDelta):
            last.clear()
            result.append(event)
            continue
        index = last.get(event.message_id, -1)
        before = result[index] if index >= 0 else None
        if isinstance(before, ReplyDelta) and before.channel is event.channel:
            rate = event.tokens_per_second
            text = before.text + event.text
            result[index] = replace(before, text=text, tokens_per_second=rate)
        else:
            last[event.message_id] = len(result)
            result.append(event)
    return result
