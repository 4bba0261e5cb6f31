"""One of several machines: a home of its own, a real engine, perhaps a shared store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from app.events import AppEvent, ModelFailed, ModelLoaded, ReplyFinished, SharedStoreChanged
from app.paths import app_paths
from app.prompting import ReplyOptions
from app.services import Services
from app.settings_file import SettingsStore
from engine.config import SamplingParams

# Other work on the machine may be heavy; nothing is measured here.
WAIT_S = 300.0
GREEDY = SamplingParams(temperature=0.0)


class Machine:
    """Services with the events so far."""

    def __init__(self, home: Path, url: str = "", **settings: object) -> None:
        paths = app_paths(home)
        paths.create()
        SettingsStore(paths.settings).update(
            shared_store_url=url, sampling=GREEDY, num_threads=1, **settings
        )
        self.events: list[AppEvent] = []
        self._changed = threading.Condition()
        self.services = Services(paths)
        self.services.subscribe(self._note)

    def load(self, model: Path) -> None:
        self.services.worker.load_model(model)
        event = self.wait_for(lambda event: isinstance(event, ModelLoaded | ModelFailed))
        assert isinstance(event, ModelLoaded), event

    def say(self, conversation_id: str, text: str, max_tokens: int = 24) -> ReplyFinished:
        """Send a message and return the end of its reply."""
        options = ReplyOptions(max_tokens=max_tokens)
        _, reply = self.services.chat.send(conversation_id, text, options=options)
        event = self.wait_for(lambda e: isinstance(e, ReplyFinished) and e.message.id == reply.id)
        assert isinstance(event, ReplyFinished)
        assert event.error is None, event.error
        return event

    def settle(self) -> None:
        """Wait until everything is written, and on the shared store."""
        assert self.services.kv.flush(WAIT_S)
        progress = self.services.shared.wait_settled(WAIT_S)
        assert progress.is_settled, progress

    def bring(self, conversation_id: str) -> None:
        """Bring a conversation from the shared store, and let the engine see it."""
        shared = self.services.shared
        self.wait_until(lambda: conversation_id in [one.id for one in shared.state.elsewhere])
        shared.bring([conversation_id])
        self.settle()

    def wait_for(self, fits: Callable[[AppEvent], bool]) -> AppEvent:
        """Return the newest event that fits, once there is one."""
        self.wait_until(lambda: any(fits(event) for event in self.events))
        return next(event for event in reversed(self.events) if fits(event))

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, WAIT_S), self.events[-5:]

    def states(self) -> list[SharedStoreChanged]:
        return [event for event in self.events if isinstance(event, SharedStoreChanged)]

    def _note(self, event: AppEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()


@contextmanager
def machine(home: Path, url: str = "", **settings: object) -> Iterator[Machine]:
    """A machine that is switched off at the end, all that it knows saved."""
    opened = Machine(home, url, **settings)
    try:
        yield opened
    finally:
        assert opened.services.close(WAIT_S)
