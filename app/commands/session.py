"""A terminal's own application: services, a loaded model, and replies waited for."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.errors import AppError
from app.events import (
    AppEvent,
    ErrorReport,
    ModelFailed,
    ModelInfo,
    ModelLoaded,
    Notice,
    ReplyDelta,
    ReplyFinished,
    ReplyProgress,
)
from app.log import command_log
from app.paths import app_paths
from app.services import Services


class CommandError(AppError):
    """A command cannot be carried out; the message says what to do."""


class TerminalSession:
    """Services whose events are read by the command itself, one at a time."""

    def __init__(self, services: Services, say: Callable[[str], None]) -> None:
        self.services = services
        self._say = say
        self._events: queue.SimpleQueue[AppEvent] = queue.SimpleQueue()
        services.subscribe(self._events.put)

    def load(self, wished: Path | None) -> ModelInfo:
        """Load a model and wait for it.

        Raises: CommandError when there is none, or it cannot be loaded.
        """
        path = wished or self._default_model()
        self.services.worker.load_model(path)
        while True:
            match self._events.get():
                case ModelLoaded(info=info):
                    return info
                case ModelFailed(error=error):
                    raise CommandError(error.message, detail=error.detail)
                case Notice(message=message):
                    self._say(message)

    def reply_events(self, reply_id: str) -> Iterator[ReplyProgress | ReplyDelta | ReplyFinished]:
        """Yield the events of one reply up to its end."""
        while True:
            match self._events.get():
                case ReplyFinished(message=message) as event if message.id == reply_id:
                    yield event
                    return
                case ReplyProgress() | ReplyDelta() as event if event.message_id == reply_id:
                    yield event
                case Notice(message=text):
                    self._say(text)

    def finished_replies(
        self, reply_ids: Sequence[str], *, on_interrupt: Callable[[], None]
    ) -> list[ReplyFinished]:
        """Wait for the ends of several replies; return them in the order asked for.

        on_interrupt: called at Ctrl+C; the waiting goes on.
        """
        ends: dict[str, ReplyFinished] = {}
        while len(ends) < len(reply_ids):
            try:
                event = self._events.get()
            except KeyboardInterrupt:
                on_interrupt()
                continue
            match event:
                case ReplyFinished(message=message) if message.id in reply_ids:
                    ends[message.id] = event
                case Notice(message=text):
                    self._say(text)
        return [ends[reply_id] for reply_id in reply_ids]

    def _default_model(self) -> Path:
        last = self.services.settings.value.last_model
        if last and Path(last).is_file():
            return Path(last)
        usable = [entry for entry in self.services.library.scan() if not entry.error]
        if not usable:
            raise CommandError(
                "There is no model yet. Put a .gguf file into the models folder, "
                "or name one with --model.",
                detail=str(self.services.paths.models),
            )
        return Path(usable[0].path)


@contextmanager
def terminal_session(say: Callable[[str], None]) -> Iterator[TerminalSession]:
    """Open the services of the user's home folder for one command.

    Raises: HomeUnusableError; DatabaseError kinds when chats.db cannot be used.
    """
    paths = app_paths()
    paths.create()
    with command_log(paths.logs):
        services = Services(paths)
        try:
            yield TerminalSession(services, say)
        finally:
            services.close(timeout_s=30.0)


def raise_for(error: ErrorReport | None) -> None:
    """Turn a reply's failure into the command's. Raises: CommandError."""
    if error is not None:
        raise CommandError(error.message, detail=error.detail)
