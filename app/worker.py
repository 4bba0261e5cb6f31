"""The engine thread: one thread owns torch, the model and every session; all others ask it.

Jobs run in steps. Between two steps a more urgent job takes over, and the interrupted one goes on
later from where it was: its state lies in the engine's memory, not on a stack that must unwind.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app.codec_gate import CodecRefusedError
from app.errors import AppError
from app.events import (
    CodecAccuracy,
    ErrorReport,
    Listener,
    ModelFailed,
    ModelInfo,
    ModelLoaded,
    ModelLoading,
    ModelUnloaded,
)
from engine.config import EngineConfig
from engine.errors import EngineError, LoadCancelledError
from engine.events import LoadProgress

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.memory.storage import ColdStore

log = logging.getLogger(__name__)

AGEING_SECONDS = 20.0
IDLE_SECONDS = 5.0


Check = Callable[["Engine", Callable[[float], None]], CodecAccuracy | None]


class Priority(IntEnum):
    """Who goes first. A job that waits AGEING_SECONDS gains one rank."""

    FOREGROUND = 0
    ASIDE = 1
    BACKGROUND = 2


class Job(Protocol):
    """Work for the engine thread, in steps short enough to be interrupted between them."""

    priority: Priority

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Do the work; yield wherever a more urgent job may take over."""
        ...

    def failed(self, error: ErrorReport) -> None:
        """Take note that the work will not be finished, and why."""
        ...


@dataclass(eq=False, slots=True)
class JobHandle:
    """A submitted job, for the one who may want to cancel it.

    conversation_id: whom a reply belongs to, None for other work. turn: when it had its last step.
    """

    job: Job
    order: int
    conversation_id: str | None = None
    turn: int = 0
    submitted: float = field(default_factory=time.monotonic)
    iterator: Iterator[None] | None = None
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Ask the job to end; it does so at its next step."""
        self._cancelled.set()

    def is_cancelled(self) -> bool:
        """Tell whether ``cancel`` was called."""
        return self._cancelled.is_set()

    def rank(self, now: float) -> tuple[float, int]:
        """Return the sort key: priority less age, then order of submission."""
        return (self.job.priority - (now - self.submitted) / AGEING_SECONDS, self.order)


class LoadEngine(Protocol):
    """How an engine comes into being; tests pass a fake one."""

    def __call__(
        self,
        path: Path,
        config: EngineConfig,
        *,
        store: ColdStore | None,
        on_progress: Callable[[LoadProgress], None],
        is_cancelled: Callable[[], bool],
    ) -> Engine:
        """Load a model; raises EngineError kinds."""
        ...


def load_engine(
    path: Path,
    config: EngineConfig,
    *,
    store: ColdStore | None,
    on_progress: Callable[[LoadProgress], None],
    is_cancelled: Callable[[], bool],
) -> Engine:
    """Load a model with the real engine. Imports torch: only ever call it on the engine thread."""
    from engine.engine import Engine

    return Engine.load(
        path, config, store=store, on_progress=on_progress, is_cancelled=is_cancelled
    )


class EngineWorker:
    """Runs jobs on one engine, the most urgent first.

    emit is called on the engine thread with every event. configure: the present engine settings,
    asked for at each load. on_step is called after every step, and every idle_seconds without
    work; idle_job, asked for in the same moments, may return work for idle times. check is asked
    of each engine that was loaded, and tells how far it is; an AppError it raises means that the
    engine is not to be used.
    num_parallel: how many replies of different conversations take turns; the engine evaluates
    their tokens together.
    """

    def __init__(
        self,
        emit: Listener,
        store: ColdStore | None,
        configure: Callable[[], EngineConfig],
        *,
        loader: LoadEngine = load_engine,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._emit = emit
        self._configure = configure
        self._store = store
        self._loader = loader
        self._idle_seconds = idle_seconds
        self._engine: Engine | None = None
        self._condition = threading.Condition()
        self._commands: deque[Callable[[], None]] = deque()
        self._waiting: list[JobHandle] = []
        self._current: JobHandle | None = None
        self._order = count()
        self._turns = count(1)
        self._load_cancelled = threading.Event()
        self._is_closing = False
        self._num_loads = 0
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.model: ModelInfo | None = None
        self.on_step: Callable[[Engine], None] = lambda engine: None
        self.idle_job: Callable[[], Job | None] = lambda: None
        self.check: Check = lambda engine, watch: None
        self.num_parallel: Callable[[], int] = lambda: 1

    def start(self) -> None:
        """Start the engine thread; it imports torch only when a model is loaded."""
        self._thread.start()

    def load_model(self, path: Path) -> None:
        """Queue the loading of a model, in place of the present one; progress comes as events."""
        self._load_cancelled.set()  # a load still under way is given up
        cancelled = self._load_cancelled = threading.Event()
        with self._condition:
            self._num_loads += 1
        self._emit(ModelLoading(str(path), 0.0, "queued"))
        self._command(lambda: self._load(path, self._configure(), cancelled))

    def cancel_load(self) -> None:
        """Give up the load under way."""
        self._load_cancelled.set()

    def unload_model(self) -> None:
        """Queue the unloading of the model; its conversations are saved first."""
        self._command(self._unload)

    def submit(self, job: Job, *, conversation_id: str | None = None) -> JobHandle:
        """Queue a job; it waits until a model is loaded.

        conversation_id: of a reply, which may take turns with those of other conversations.
        """
        handle = JobHandle(job, next(self._order), conversation_id)
        with self._condition:
            self._waiting.append(handle)
            self._condition.notify()
        return handle

    @property
    def is_busy(self) -> bool:
        """Whether the engine works on something at this moment."""
        return self._current is not None

    def num_ahead(self, priority: Priority) -> int:
        """Return how many jobs a new one of this priority waits for, the present one included.

        Those it would take turns with do not count.
        """
        now = time.monotonic()
        with self._condition:
            ahead = sum(handle.rank(now)[0] <= priority for handle in self._waiting)
            current = self._current
            ahead += current is not None and current.job.priority <= priority
        return max(0, ahead - (self.num_parallel() - 1))

    def close(self, timeout_s: float) -> bool:
        """Cancel everything, save, unload, end the thread; False when that took too long."""
        with self._condition:
            self._is_closing = True
            self._load_cancelled.set()
            for handle in self._waiting:
                handle.cancel()
            if self._current is not None:
                self._current.cancel()
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _command(self, command: Callable[[], None]) -> None:
        with self._condition:
            self._commands.append(command)
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                has_work = self._condition.wait_for(self._has_work, self._patience())
                if self._is_closing:
                    break
                command = self._commands.popleft() if self._commands else None
            if command is not None:
                command()
            elif has_work:
                self._run_most_urgent()
            else:
                self._idle()
        self._end_all_jobs("The program is closing.")
        self._unload()

    def _has_work(self) -> bool:
        can_run = self._engine is not None and bool(self._waiting)
        return self._is_closing or bool(self._commands) or can_run

    def _patience(self) -> float | None:
        """Return the seconds to wait for work; None, for ever, without a model."""
        return None if self._engine is None else self._idle_seconds

    def _idle(self) -> None:
        assert self._engine is not None
        self.on_step(self._engine)
        job = self.idle_job()
        if job is not None:
            self.submit(job)

    def _run_most_urgent(self) -> None:
        with self._condition:
            handle = min(self._taking_turns(), key=lambda h: (h.turn, h.order))
            handle.turn = next(self._turns)
            self._waiting.remove(handle)
            self._current = handle
        is_done = self._advance(handle, self._should_yield)
        with self._condition:
            self._current = None
            if not is_done:
                self._waiting.append(handle)

    def _taking_turns(self) -> list[JobHandle]:
        """Return the most urgent waiting job, and the replies that share the engine with it."""
        now = time.monotonic()
        first, *others = sorted(self._waiting, key=lambda handle: handle.rank(now))
        chosen = [first]
        taken = {first.conversation_id, None}
        for other in others if first.conversation_id is not None else ():
            is_equal = other.job.priority == first.job.priority
            if is_equal and other.conversation_id not in taken:
                chosen.append(other)
                taken.add(other.conversation_id)
        return chosen[: max(1, self.num_parallel())]

    def _should_yield(self, handle: JobHandle) -> bool:
        """Tell whether something more urgent waits, or a reply whose turn it is."""
        with self._condition:
            if self._is_closing or self._commands:
                return True
            if any(h.job.priority < handle.job.priority for h in self._waiting):
                return True
            if handle.conversation_id is None or self.num_parallel() <= 1:
                return False
            return any(h.conversation_id is not None for h in self._waiting)

    def _advance(self, handle: JobHandle, should_yield: Callable[[JobHandle], bool]) -> bool:
        """Run a job's steps; True when it has ended, in whatever way."""
        assert self._engine is not None
        try:
            if handle.iterator is None:
                handle.iterator = handle.job.steps(self._engine, handle.is_cancelled)
            for _ in handle.iterator:
                self.on_step(self._engine)
                if should_yield(handle):
                    return False
        except (EngineError, AppError) as error:
            _fail(handle.job, report(error))
        except Exception as error:  # the last line of defence: a bug must not kill the thread
            log.exception("a job failed")
            _fail(handle.job, report(error))
        self.on_step(self._engine)
        return True

    def _load(self, path: Path, config: EngineConfig, cancelled: threading.Event) -> None:
        self._unload()
        try:
            engine = self._loader(
                path,
                config,
                store=self._store,
                on_progress=lambda p: self._emit(ModelLoading(str(path), p.fraction, p.stage)),
                is_cancelled=cancelled.is_set,
            )
            self._use(engine, partial(self._watch, path, cancelled))
        except LoadCancelledError:
            self._emit(ModelUnloaded(str(path), cancelled=True))
        except CodecRefusedError as error:
            self._load_failed(path, report(error), error.accuracy)
        except (EngineError, AppError, OSError) as error:
            self._load_failed(path, report(error))
        except Exception as error:  # see _advance
            log.exception("loading %s failed", path)
            self._load_failed(path, report(error))
        finally:
            with self._condition:
                self._num_loads -= 1

    def _watch(self, path: Path, cancelled: threading.Event, fraction: float) -> None:
        """Tell how far the check is. Raises: LoadCancelledError when it was given up."""
        if cancelled.is_set():
            raise LoadCancelledError("The loading was cancelled.")
        self._emit(ModelLoading(str(path), fraction, "measuring"))

    def _use(self, engine: Engine, watch: Callable[[float], None]) -> None:
        """Take a loaded engine into service. Raises: AppError when it is refused."""
        try:
            accuracy = self.check(engine, watch)
        except BaseException:
            engine.unload()
            raise
        self._engine = engine
        self.model = model_info(engine, accuracy)
        self._emit(ModelLoaded(self.model))
        self.on_step(engine)

    def _load_failed(
        self, path: Path, error: ErrorReport, accuracy: CodecAccuracy | None = None
    ) -> None:
        self._emit(ModelFailed(str(path), error, accuracy))
        if not self._commands:
            self._end_all_jobs(error.message)

    def _unload(self) -> None:
        if self._engine is None:
            return
        self._finish_started_jobs()
        engine, self._engine = self._engine, None
        self.model = None
        engine.unload()
        self._emit(ModelUnloaded(str(engine.info.path)))

    def _finish_started_jobs(self) -> None:
        """Let jobs that hold state of the present model end as cancelled."""
        with self._condition:
            started = [handle for handle in self._waiting if handle.iterator is not None]
            self._waiting = [handle for handle in self._waiting if handle.iterator is None]
        for handle in started:
            handle.cancel()
            self._advance(handle, lambda _: False)

    def _end_all_jobs(self, reason: str) -> None:
        if self._engine is not None:
            self._finish_started_jobs()
        with self._condition:
            waiting, self._waiting = self._waiting, []
        for handle in waiting:
            _fail(handle.job, ErrorReport("NotRun", reason))


def _fail(job: Job, error: ErrorReport) -> None:
    try:
        job.failed(error)
    except Exception:  # see _advance
        log.exception("a job could not take note of its failure")


def report(error: BaseException) -> ErrorReport:
    """Put an exception into words for the user, with the details for a bug report."""
    kind = type(error).__name__
    if isinstance(error, EngineError | AppError):
        return ErrorReport(kind, str(error), error.detail)
    if isinstance(error, MemoryError):
        return ErrorReport(kind, "There is not enough memory for this.", str(error))
    if isinstance(error, OSError):
        return ErrorReport(kind, f"The file cannot be used: {error.strerror or error}.", str(error))
    detail = "".join(traceback.format_exception(error))
    return ErrorReport(kind, "Something went wrong inside Reprise.", detail)


def model_info(engine: Engine, accuracy: CodecAccuracy | None = None) -> ModelInfo:
    """Return what the window shows of a loaded model."""
    info = engine.info
    return ModelInfo(
        path=str(info.path),
        name=info.name,
        architecture=info.architecture,
        size_bytes=info.size_bytes,
        num_parameters=info.num_parameters,
        quantisation=info.quantisation,
        context_length=info.context_length,
        trained_context_length=info.trained_context_length,
        has_chat_template=info.has_chat_template,
        kv_codec=info.kv_codec,
        kv_bytes_per_token=tuple(info.kv_bytes_per_token.items()),
        block_size=info.block_size,
        compute=info.compute,
        num_threads=info.num_threads,
        load_ms=info.load_ms,
        codec_accuracy=accuracy,
        can_roll=info.can_roll,
        accelerator=info.accelerator,
        num_layers=sum(count for _, count in info.devices),
        num_offloaded=sum(count for device, count in info.devices if device != "cpu"),
    )
