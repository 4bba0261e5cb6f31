"""An engine without a model: it answers with the words it was given, one event at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from engine.config import ChatMessage, EngineConfig, GenerateRequest
from engine.errors import LoadCancelledError, ModelFileError
from engine.events import (
    BatchEvent,
    Channel,
    ContextCut,
    Finished,
    FinishReason,
    GenerateEvent,
    LoadProgress,
    OverflowQuestion,
    PrefillProgress,
    ReusedTokens,
    TextDelta,
    Timing,
    Usage,
)
from engine.memory.interface import Match, MemoryBreakdown, TierUse
from engine.metrics import Rates

BREAKDOWN = MemoryBreakdown((TierUse("hot", 100, 1000, 3),), 1, 50, 10, 32)


@dataclass
class FakeEngine:
    """What the worker and the jobs ask of an engine.

    words: the reply. gate: where set, each word waits for it. asked: every request seen.
    """

    path: Path
    words: tuple[str, ...] = ("one ", "two ", "three")
    gate: threading.Semaphore | None = None
    asked: list[GenerateRequest] = field(default_factory=list)
    calls: list[tuple[str, str]] = field(default_factory=list)
    cloned: list[tuple[str, tuple[ChatMessage, ...], str, float]] = field(default_factory=list)
    is_unloaded: bool = False
    fails_with: Exception | None = None
    question: OverflowQuestion | None = None
    cut: ContextCut | None = None

    @property
    def info(self) -> SimpleNamespace:
        return SimpleNamespace(
            path=self.path,
            name="Fake",
            architecture="fake",
            size_bytes=1,
            num_parameters=1,
            devices=(("cpu", 1),),
            accelerator="",
            quantisation="Q4_1",
            context_length=128,
            trained_context_length=128,
            has_chat_template=True,
            can_roll=True,
            kv_codec="f16",
            kv_bytes_per_token={"f16": 10},
            block_size=32,
            compute="fake",
            num_threads=1,
            load_ms=1.0,
        )

    def generate(
        self, request: GenerateRequest, *, is_cancelled: Callable[[], bool] = lambda: False
    ) -> Iterator[GenerateEvent]:
        self.asked.append(request)
        if self.fails_with is not None:
            raise self.fails_with
        if self.cut is not None:
            yield self.cut
        yield PrefillProgress(5, 10, 5)
        yield PrefillProgress(10, 10, 5)
        reason = FinishReason.STOP
        count = 0
        for word in self.words:
            if self.gate is not None:
                self.gate.acquire()
            if is_cancelled():
                reason = FinishReason.CANCELLED
                break
            count += 1
            yield TextDelta(word, Channel.CONTENT, count)
        usage = Usage(10, ReusedTokens(hot=5), count)
        yield Finished(reason, tuple(range(count)), usage, Timing(1.0, 2.0, 3.0, 40.0))

    def generate_batch(
        self,
        request: GenerateRequest,
        n: int,
        *,
        is_cancelled: Callable[[int], bool] = lambda index: False,
    ) -> Iterator[BatchEvent]:
        replies = [
            self.generate(request, is_cancelled=partial(is_cancelled, index)) for index in range(n)
        ]
        for events in zip(*replies, strict=True):
            yield from (BatchEvent(index, event) for index, event in enumerate(events))

    def overflow_question(self, request: GenerateRequest) -> OverflowQuestion | None:
        return self.question

    def readiness(self, conversation_id: str, messages: tuple[ChatMessage, ...]) -> SimpleNamespace:
        return SimpleNamespace(hot_tokens=10, stored_tokens=0, unread_tokens=2)

    def rates(self) -> Rates:
        return Rates(100.0, 40.0, 1000.0)

    def breakdown(self) -> MemoryBreakdown:
        return BREAKDOWN

    def restore(self, conversation_id: str) -> Match:
        self.calls.append(("restore", conversation_id))
        return Match()

    def release(self, conversation_id: str) -> None:
        self.calls.append(("release", conversation_id))

    def clone(
        self, conversation_id: str, messages: tuple[ChatMessage, ...], copy_id: str, decay: float
    ) -> SimpleNamespace:
        if self.fails_with is not None:
            raise self.fails_with
        self.cloned.append((conversation_id, messages, copy_id, decay))
        return SimpleNamespace(num_tokens=100, num_places=round(100 * decay), branch="b")

    def unload(self) -> None:
        self.is_unloaded = True


class FakeLoader:
    """Loads a FakeEngine; a file called "broken.gguf" fails, "slow.gguf" waits to be cancelled."""

    def __init__(self, engine: FakeEngine | None = None) -> None:
        self.engine = engine
        self.configs: list[EngineConfig] = []

    def __call__(
        self,
        path: Path,
        config: EngineConfig,
        *,
        store: object,
        on_progress: Callable[[LoadProgress], None],
        is_cancelled: Callable[[], bool],
    ) -> FakeEngine:
        self.configs.append(config)
        on_progress(LoadProgress(0.5, "tensors"))
        if path.name == "broken.gguf":
            raise ModelFileError("The file is damaged.", detail="offset 12")
        if path.name == "slow.gguf":
            waiting = threading.Event()
            while not is_cancelled():
                waiting.wait(0.005)
            raise LoadCancelledError("cancelled")
        self.engine = self.engine or FakeEngine(path)
        self.engine.path = path
        return self.engine
