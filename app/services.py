"""Everything of one home folder, put together and taken apart in the right order."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from app.chat import ChatService
from app.codec_gate import CodecGate, Watch
from app.configuring import cold_budget, engine_config, model_folders, open_kv_store
from app.errors import SettingsError
from app.events import (
    AppEvent,
    CodecAccuracy,
    ConversationChanged,
    Listener,
    ModelLoaded,
    Notice,
    ReplyFinished,
)
from app.model_library import ModelLibrary
from app.monitor import CacheMonitor
from app.paths import AppPaths
from app.settings import Settings
from app.settings_file import SettingsStore
from app.shared_texts import ChatTexts
from app.store.base import now
from app.store.chat_store import ChatStore
from app.store.kv_queue import deadline_after
from app.store.shared.store import SharedStore
from app.store.tiered_store import TieredStore
from app.worker import EngineWorker, LoadEngine, load_engine
from engine.config import EngineConfig

if TYPE_CHECKING:
    from engine.engine import Engine

log = logging.getLogger(__name__)

KEEP_DELETED = timedelta(days=30)
# Of the time to close, what kv.db needs for itself.
_TO_CLOSE_S = 0.5


class Services:
    """The application without a window.

    Opening reads settings and databases but never imports torch; the engine thread does that when
    a model is loaded. wishes: what this run wants otherwise than the settings say.
    Raises: HomeUnusableError; DatabaseError kinds when chats.db cannot be used.
    """

    def __init__(self, paths: AppPaths, *, loader: LoadEngine = load_engine) -> None:
        paths.create()
        self.paths = paths
        self._listeners: list[Listener] = []
        self._listeners_lock = threading.Lock()
        self._unheard: list[AppEvent] = []
        self._scans: list[threading.Thread] = []
        self.settings = SettingsStore(paths.settings)
        self.wishes: Callable[[Settings], Settings] = lambda settings: settings
        self.chats = ChatStore(paths.chats, on_notice=self._emit)
        self.kv = open_kv_store(self.settings.value, paths, on_notice=self._emit)
        self.shared = SharedStore(
            self.kv.replicas,
            ChatTexts(self.chats, self._merged),
            on_change=self._emit,
            on_arrived=self._arrived,
        )
        self.library = ModelLibrary(model_folders(self.settings.value, paths), paths.model_headers)
        self.worker = EngineWorker(
            self._emit, TieredStore(self.kv, self.shared), self.engine_config, loader=loader
        )
        self.chat = ChatService(self.chats, self.worker, self.settings, self._emit)
        self._monitor = CacheMonitor(self._emit, self.kv)
        self.kv.pace_while(lambda: self.worker.is_busy)
        self.worker.on_step = self._monitor.look
        self.worker.idle_job = self.chat.idle_job
        self.worker.check = self._check_codec
        self.worker.num_parallel = lambda: self.settings.value.parallel_sequences
        self._in_force = self.settings.value
        self.settings.subscribe(self._apply)
        self._recover()
        self.worker.start()
        self.shared.set_url(self.settings.value.shared_store_url)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call listener with every event, on whatever thread it arises; return how to stop.

        The first listener is told what came up before there was one.
        """
        with self._listeners_lock:
            self._listeners.append(listener)
            unheard, self._unheard = self._unheard, []
        for event in unheard:
            listener(event)
        return lambda: self._unsubscribe(listener)

    def engine_config(self) -> EngineConfig:
        """Return the engine's part of the settings."""
        return engine_config(self.wishes(self.settings.value), self.paths)

    def close(self, timeout_s: float = 2.0) -> bool:
        """Stop, save what is pending within timeout_s, close the files; False when cut short."""
        left = deadline_after(timeout_s)
        is_saved = self.worker.close(left())
        is_saved = self.chat.save_pending() and is_saved
        for scan in self._scans:
            scan.join(left())
        if self.settings.value.shared_store_url:
            # What was saved just now can still go out; the rest goes at the next start.
            self.kv.flush(left() - _TO_CLOSE_S)
        self.shared.close(left() - _TO_CLOSE_S)
        is_written = self.kv.close(left())
        self.chats.close()
        return is_saved and is_written

    def _unsubscribe(self, listener: Listener) -> None:
        with self._listeners_lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def _emit(self, event: AppEvent) -> None:
        self._react(event)
        with self._listeners_lock:
            listeners = list(self._listeners)
            if not listeners and isinstance(event, Notice):
                self._unheard.append(event)
        for listener in listeners:
            listener(event)

    def _apply(self, settings: Settings) -> None:
        """Let a changed setting reach what is open. What needs a reload waits for it."""
        before, self._in_force = self._in_force, settings
        if settings.cold_budget_bytes != before.cold_budget_bytes:
            self.kv.set_budget(cold_budget(settings, self.paths))
        if settings.shared_store_url != before.shared_store_url:
            self.shared.set_url(settings.shared_store_url)
        self.kv.is_keeping = settings.keep_conversations_ready
        self.kv.set_eviction_order(settings.eviction_order)
        if settings.model_folders != before.model_folders:
            self.library.set_folders(model_folders(settings, self.paths))
            self._scan()

    def _check_codec(self, engine: Engine, watch: Watch) -> CodecAccuracy | None:
        gate = CodecGate(self.paths.codecs)
        return gate.check(engine, is_forced=self.settings.value.force_kv_codec, watch=watch)

    def _scan(self) -> None:
        """Read the headers of models in new folders while nobody waits for them."""
        self._scans = [scan for scan in self._scans if scan.is_alive()]
        scan = threading.Thread(target=self.library.scan, name="model-scan", daemon=True)
        self._scans.append(scan)
        scan.start()

    def _react(self, event: AppEvent) -> None:
        match event:
            case ModelLoaded():
                self._remember_model(event.info.path)
                self._monitor.forget_turns()
                self.chat.refresh_readiness(is_new_model=True)
                self.chat.residency.prefetch_likely(None)
            case ReplyFinished(message=message) if message.stats is not None:
                self._monitor.record(message.stats)
            case ConversationChanged(conversation_id=conversation_id):
                self.shared.note_changed(conversation_id)
            case Notice():
                log.warning("%s: %s", event.kind, event.message)

    def _remember_model(self, path: str) -> None:
        try:
            self.settings.update(last_model=path)
        except SettingsError as error:  # a full disk is no reason to do without the model
            log.warning("the model will not be found again by itself: %s", error)

    def _merged(self, conversation_id: str) -> None:
        """Show messages that came from another machine. Runs on the replicating thread."""
        self.chat.note_changed(conversation_id)

    def _arrived(self, conversation_id: str) -> None:
        self.chat.look_again(conversation_id)

    def _recover(self) -> None:
        """Put right what an unclean end left behind, and erase what was deleted long ago."""
        count = self.chats.recover_unfinished()
        if count:
            log.info("%d unfinished replies were marked as stopped", count)
        for conversation_id in self.chats.purge_deleted(now() - KEEP_DELETED):
            self.kv.forget(conversation_id)
