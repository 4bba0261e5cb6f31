"""The engine thread: priorities, preemption, cancelling, loading, and a clean end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.codec_gate import CodecRefusedError
from app.errors import DatabaseFullError, SettingsError
from app.events import (
    AppEvent,
    CodecAccuracy,
    ErrorReport,
    ModelFailed,
    ModelLoaded,
    ModelLoading,
    ModelUnloaded,
)
from app.worker import AGEING_SECONDS, EngineWorker, JobHandle, Priority
from engine.config import EngineConfig
from engine.errors import OutOfMemoryError
from tests.app.fake_engine import FakeEngine, FakeLoader
from tests.app.waiting import WAIT_S

MODEL = Path("model.gguf")


class Recorder:
    """Listens to events and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[AppEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: AppEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, kind: type[AppEvent], count: int = 1) -> AppEvent:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.of(kind)) >= count, WAIT_S), self.events
        return self.of(kind)[-1]

    def of(self, kind: type[AppEvent]) -> list[AppEvent]:
        return [event for event in self.events if isinstance(event, kind)]


class StepJob:
    """Writes its name into a list at every step; may wait at a gate, or fail."""

    def __init__(
        self,
        name: str,
        trace: list[str],
        *,
        priority: Priority = Priority.FOREGROUND,
        num_steps: int = 1,
        gate: threading.Semaphore | None = None,
        error: Exception | None = None,
    ) -> None:
        self.priority = priority
        self.done = threading.Event()
        self.error: ErrorReport | None = None
        self._name, self._trace, self._num_steps = name, trace, num_steps
        self._gate, self._raises = gate, error

    def steps(self, engine: FakeEngine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        for _ in range(self._num_steps):
            if is_cancelled():
                self._trace.append(f"{self._name} cancelled")
                break
            if self._gate is not None:
                self._gate.acquire()
            if self._raises is not None:
                raise self._raises
            self._trace.append(self._name)
            yield
        self.done.set()

    def failed(self, error: ErrorReport) -> None:
        self.error = error
        self.done.set()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader()


@pytest.fixture
def worker(recorder: Recorder, loader: FakeLoader) -> Iterator[EngineWorker]:
    worker = EngineWorker(recorder, None, EngineConfig, loader=loader)
    worker.start()
    yield worker
    assert worker.close(WAIT_S)


def loaded(worker: EngineWorker, recorder: Recorder) -> None:
    worker.load_model(MODEL)
    recorder.wait_for(ModelLoaded)


def test_loading_tells_progress_and_then_the_model(worker, recorder):
    loaded(worker, recorder)
    assert [event.stage for event in recorder.of(ModelLoading)] == ["queued", "tensors"]
    assert worker.model is not None
    assert worker.model.name == "Fake"


def test_a_model_that_fails_to_load_is_told_in_plain_words(worker, recorder):
    worker.load_model(Path("broken.gguf"))
    error = recorder.wait_for(ModelFailed).error
    assert error == ErrorReport("ModelFileError", "The file is damaged.", "offset 12")
    assert worker.model is None


def test_an_engine_that_is_refused_is_given_back_and_the_reason_told(worker, recorder, loader):
    def refuse(engine: FakeEngine, watch: object) -> None:
        raise SettingsError("kv_codec", "This loses too much.")

    worker.check = refuse
    worker.load_model(MODEL)
    assert recorder.wait_for(ModelFailed).error.message == "This loses too much."
    assert loader.engine.is_unloaded
    assert worker.model is None


def test_what_was_measured_of_the_codec_is_told_with_the_model(worker, recorder):
    accuracy = CodecAccuracy("int8", 256, 0.0, 1.0, 0.0)
    worker.check = lambda engine, watch: accuracy
    loaded(worker, recorder)
    assert worker.model.codec_accuracy == accuracy


def test_checking_the_codec_tells_progress_and_can_be_cancelled(worker, recorder, loader):
    def measure(engine: FakeEngine, watch: Callable[[float], None]) -> None:
        watch(0.5)
        worker.cancel_load()
        watch(0.75)
        raise AssertionError("it goes on")

    worker.check = measure
    worker.load_model(MODEL)
    assert recorder.wait_for(ModelUnloaded).cancelled
    told = [event for event in recorder.of(ModelLoading) if event.stage == "measuring"]
    assert [event.fraction for event in told] == [0.5]
    assert loader.engine.is_unloaded


def test_a_codec_that_is_refused_comes_with_its_numbers(worker, recorder):
    accuracy = CodecAccuracy("int8", 256, 0.1, 0.9, 0.1)

    def refuse(engine: FakeEngine, watch: object) -> None:
        raise CodecRefusedError(accuracy)

    worker.check = refuse
    worker.load_model(MODEL)
    assert recorder.wait_for(ModelFailed).accuracy == accuracy


def test_a_load_can_be_cancelled(worker, recorder):
    worker.load_model(Path("slow.gguf"))
    recorder.wait_for(ModelLoading, 2)
    worker.cancel_load()
    assert recorder.wait_for(ModelUnloaded).cancelled


def test_a_second_load_gives_the_first_one_up(worker, recorder):
    worker.load_model(Path("slow.gguf"))
    recorder.wait_for(ModelLoading, 2)
    loaded(worker, recorder)
    assert worker.model is not None


def test_jobs_wait_for_a_model(worker, recorder):
    trace: list[str] = []
    job = StepJob("a", trace)
    worker.submit(job)
    assert not job.done.wait(0.05)
    loaded(worker, recorder)
    assert job.done.wait(WAIT_S)


def test_jobs_that_wait_for_a_model_that_cannot_be_loaded_fail(worker, recorder):
    job = StepJob("a", [])
    worker.submit(job)
    worker.load_model(Path("broken.gguf"))
    assert job.done.wait(WAIT_S)
    assert job.error is not None
    assert job.error.message == "The file is damaged."


def test_an_urgent_job_interrupts_background_work_which_then_goes_on(worker, recorder):
    loaded(worker, recorder)
    trace: list[str] = []
    gate = threading.Semaphore(0)
    slow = StepJob("slow", trace, priority=Priority.BACKGROUND, num_steps=3, gate=gate)
    urgent = StepJob("urgent", trace)
    worker.submit(slow)
    gate.release()
    worker.submit(urgent)
    gate.release(2)
    assert slow.done.wait(WAIT_S)
    assert urgent.done.wait(WAIT_S)
    assert trace.index("urgent") < 3
    assert trace.count("slow") == 3


def test_waiting_long_enough_raises_a_jobs_rank():
    old = JobHandle(StepJob("old", [], priority=Priority.BACKGROUND), 0)
    young = JobHandle(StepJob("young", [], priority=Priority.FOREGROUND), 1)
    now = young.submitted
    old.submitted = now - AGEING_SECONDS
    assert old.rank(now) > young.rank(now)
    old.submitted = now - 3 * AGEING_SECONDS
    assert old.rank(now) < young.rank(now)


def test_cancelling_reaches_a_running_job(worker, recorder):
    loaded(worker, recorder)
    trace: list[str] = []
    gate = threading.Semaphore(1)
    job = StepJob("a", trace, num_steps=10, gate=gate)
    handle = worker.submit(job)
    handle.cancel()
    gate.release(2)
    assert job.done.wait(WAIT_S)
    assert trace[-1] == "a cancelled"


@pytest.mark.parametrize("error", [OutOfMemoryError("too small"), RuntimeError("bug")])
def test_a_failing_job_neither_kills_the_thread_nor_the_next_job(worker, recorder, error):
    loaded(worker, recorder)
    failing, next_job = StepJob("a", [], error=error), StepJob("b", [])
    worker.submit(failing)
    worker.submit(next_job)
    assert next_job.done.wait(WAIT_S)
    assert failing.error is not None
    assert failing.error.kind == type(error).__name__


def test_unloading_ends_started_jobs_as_cancelled_and_keeps_waiting_ones(worker, recorder, loader):
    loaded(worker, recorder)
    trace: list[str] = []
    gate = threading.Semaphore(1)
    started = StepJob("started", trace, num_steps=10, gate=gate)
    worker.submit(started)
    while not trace:
        threading.Event().wait(0.001)
    worker.unload_model()
    gate.release(2)
    recorder.wait_for(ModelUnloaded)
    assert started.done.is_set()
    assert loader.engine.is_unloaded


def test_closing_fails_jobs_that_never_ran(recorder, loader):
    worker = EngineWorker(recorder, None, EngineConfig, loader=loader)
    worker.start()
    job = StepJob("a", [])
    worker.submit(job)
    assert worker.close(WAIT_S)
    assert job.error is not None
    assert job.error.kind == "NotRun"


def test_a_job_that_cannot_even_note_its_failure_leaves_the_thread_alive(worker, recorder):
    class Hopeless(StepJob):
        def failed(self, error: ErrorReport) -> None:
            super().failed(error)
            raise DatabaseFullError("The disk is full.")

    loaded(worker, recorder)
    first, second = Hopeless("a", [], error=OutOfMemoryError("No room.")), StepJob("b", [])
    worker.submit(first)
    worker.submit(second)
    assert second.done.wait(WAIT_S)
    assert first.error is not None


def test_replies_of_different_conversations_take_turns(worker, recorder):
    worker.num_parallel = lambda: 2
    trace: list[str] = []
    gate = threading.Semaphore(0)
    jobs = [StepJob(name, trace, num_steps=3, gate=gate) for name in "abc"]
    background = StepJob("x", trace, priority=Priority.BACKGROUND)
    for job in jobs:
        worker.submit(job, conversation_id=str(id(job)))
    worker.submit(background)
    loaded(worker, recorder)
    gate.release(9)
    assert background.done.wait(WAIT_S)
    assert trace == [*"ababab", *"ccc", "x"]


def test_replies_of_one_conversation_follow_each_other(worker, recorder):
    worker.num_parallel = lambda: 4
    trace: list[str] = []
    jobs = [StepJob(name, trace, num_steps=2) for name in "abc"]
    for job, conversation in zip(jobs, ("one", "one", "two"), strict=True):
        worker.submit(job, conversation_id=conversation)
    loaded(worker, recorder)
    assert jobs[1].done.wait(WAIT_S)
    assert trace == ["a", "c", "a", "c", "b", "b"]


def test_what_takes_turns_is_not_ahead(worker):
    for number in range(3):
        worker.submit(StepJob("a", []), conversation_id=str(number))
    assert worker.num_ahead(Priority.FOREGROUND) == 3
    worker.num_parallel = lambda: 3
    assert worker.num_ahead(Priority.FOREGROUND) == 1
