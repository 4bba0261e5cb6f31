"""The engine: one loaded model, its memory, its sessions. Everything the application may ask of it.

Not thread-safe: one thread owns it. Knows neither Qt nor SQL.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from engine.batch import Batch
from engine.config import (
    MAX_COMPLETIONS,
    ChatMessage,
    EngineConfig,
    GenerateRequest,
    KVCodec,
    SamplingParams,
)
from engine.decoder import Decoder
from engine.device import find_accelerator
from engine.errors import EngineError
from engine.events import BatchEvent, GenerateEvent, LoadProgress, OverflowQuestion
from engine.generation import Clock, Generation, Prompt
from engine.gguf_file import GGUFFile
from engine.loader import load_model
from engine.loading import LoadedModel, load
from engine.memory.factory import build_memory
from engine.memory.interface import Match, Memory, MemoryBreakdown
from engine.memory.storage import ColdStore
from engine.metrics import RateMeter, Rates
from engine.models import Model
from engine.native_runner import NativeRunner
from engine.probe import Probe
from engine.quant.linear import Compute
from engine.runner import Runner, TorchRunner
from engine.sampling import Sampler
from engine.session.cloning import Cloned, Cloning
from engine.session.overflow import OverflowPlan
from engine.session.pool import SessionPool
from engine.session.preparation import Preparation
from engine.session.prompt import PromptPlanner
from engine.session.rolling import Rolling
from engine.session.session import Session
from engine.session.trimming import Trimmer
from engine.text.output_parser import OutputParser
from engine.text.reply import ReplyText


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What is loaded and how it runs.

    kv_bytes_per_token: by codec name. can_roll: whether a full context can go on as a rolling
    window. devices: on which devices layers are, and how many. accelerator: the device beside the
    CPU that they could be on, "" without one.
    """

    path: Path
    name: str
    architecture: str
    size_bytes: int
    num_parameters: int
    quantisation: str
    context_length: int
    trained_context_length: int
    has_chat_template: bool
    can_roll: bool
    devices: tuple[tuple[str, int], ...]
    accelerator: str
    kv_codec: str
    kv_bytes_per_token: dict[str, int]
    block_size: int
    compute: str
    num_threads: int
    fingerprint: str
    load_ms: float


@dataclass(frozen=True, slots=True)
class EngineReadiness:
    """Where a conversation's tokens lie: in place, in the store, or to be read."""

    hot_tokens: int
    stored_tokens: int
    unread_tokens: int


class Engine:
    """One loaded model and the state of every conversation held with it."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig, store: ColdStore | None) -> None:
        self._loaded = loaded
        self._config = config
        self._pool = SessionPool(
            loaded.memory, loaded.fingerprint, store, block_size=loaded.block_size
        )
        self._planner = PromptPlanner(loaded.template, loaded.tokenizer)
        self._rolling = Rolling(loaded.memory, self._pool, self._planner, self._lazy_model)
        self._trimmer = Trimmer(
            pool=self._pool,
            planner=self._planner,
            rolling=self._rolling,
            context_length=loaded.context_length,
        )
        self._preparation = Preparation(
            memory=loaded.memory,
            pool=self._pool,
            trimmer=self._trimmer,
            tokenizer=loaded.tokenizer,
            context_length=loaded.context_length,
            block_size=loaded.block_size,
        )
        self._decoder = Decoder(loaded.memory, self._pool, loaded.runner)
        self._prefill_rate = RateMeter()
        self._decode_rate = RateMeter()
        self._restore_rate = RateMeter()
        self.info = _info(loaded, config, can_roll=self._rolling.refusal is None)

    @classmethod
    def load(
        cls,
        path: Path,
        config: EngineConfig | None = None,
        *,
        store: ColdStore | None = None,
        on_progress: Callable[[LoadProgress], None] = lambda progress: None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Engine:
        """Open a GGUF file and make it ready to generate.

        Raises: ModelFileError, UnsupportedModelError, TokenizerError, ChatTemplateError,
            OutOfMemoryError, LoadCancelledError.
        """
        config = config or EngineConfig()
        file = GGUFFile.open(path)
        try:
            loaded = load(file, config, store, on_progress, is_cancelled)
        except BaseException:
            file.close()
            raise
        on_progress(LoadProgress(1.0, "ready"))
        return cls(loaded, config, store)

    def generate(
        self,
        request: GenerateRequest,
        *,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[GenerateEvent]:
        """Yield the events of one reply; see ``engine.events`` for their order.

        Where several iterators are advanced in turns, their tokens are evaluated in one pass.
        is_cancelled is asked before every prefill chunk and decode step; the reply then ends with
        ``Finished(CANCELLED)``. Closing the iterator cancels too, without a last event. Either way
        everything computed stays valid.
        Raises: ContextOverflowError, ChatTemplateError, OutOfMemoryError.
        """
        events = self.generate_batch(request, 1, is_cancelled=lambda index: is_cancelled())
        with closing(events):
            for found in events:
                yield found.event

    def generate_batch(
        self,
        request: GenerateRequest,
        n: int,
        *,
        is_cancelled: Callable[[int], bool] = lambda index: False,
    ) -> Generator[BatchEvent]:
        """Yield the events of n replies to one prompt, which is read once.

        They share its memory and grow together, one pass of the model for a token of each. Reply i
        draws with the request's seed + i. Each becomes a branch of the conversation; none does
        where the request is ephemeral. is_cancelled is asked for each reply by its index.
        Raises: as ``generate``, ValueError when n is not in 1..64.
        """
        if not 1 <= n <= MAX_COMPLETIONS:
            raise ValueError(f"n is out of range: {n}")
        clock = Clock()
        prompt = self._preparation.prepare(request, clock)
        batch = Batch(
            n,
            self._pool,
            partial(self._generation, request),
            is_cancelled=is_cancelled,
            is_ephemeral=request.ephemeral,
        )
        try:
            yield from batch.run(prompt, clock)
        finally:
            for generation in batch.generations:
                self._measure(generation)

    def count_tokens(self, messages: tuple[ChatMessage, ...]) -> int:
        """Return the tokens these messages take, the reply's opening included.

        Raises: ChatTemplateError when the template refuses them.
        """
        return self._planner.plan(Session("", ""), messages).num_new_tokens

    def plan_overflow(self, request: GenerateRequest) -> OverflowPlan | None:
        """Return what the request's overflow policy would leave out; None where it cannot help.

        Raises: ChatTemplateError when the template refuses the messages.
        """
        return self._trimmer.plan(request)

    def overflow_question(self, request: GenerateRequest) -> OverflowQuestion | None:
        """Return what could be done about a request that does not fit; None where it does.

        None as well where nothing helps. Changes nothing and reads nothing.
        Raises: ChatTemplateError when the template refuses the messages.
        """
        return self._trimmer.question(request)

    def readiness(self, conversation_id: str, messages: tuple[ChatMessage, ...]) -> EngineReadiness:
        """Return how much of a conversation would have to be read before it goes on."""
        session, num_matching = self._pool.best_match(conversation_id, messages)
        if session is None:
            return EngineReadiness(0, 0, self.count_tokens(messages))
        kept = session.end_of(num_matching)
        hot = min(kept, self._pool.resident_length(session))
        stored = min(kept, session.num_stored)
        plan = self._planner.plan(session, messages)
        unread = kept - max(hot, stored) + plan.num_new_tokens
        return EngineReadiness(hot, stored, unread)

    def restore(self, conversation_id: str) -> Match:
        """Bring a conversation's latest branch back from the store, ahead of its next turn."""
        sessions = self._pool.sessions(conversation_id)
        if not sessions:
            return Match()
        started = time.perf_counter()
        match = self._pool.bring_back(max(sessions, key=lambda session: session.last_used))
        if match.cold:
            self._restore_rate.add(match.cold, time.perf_counter() - started)
        return match

    def look_again(self, conversation_id: str) -> bool:
        """Take in what came into the store from elsewhere; True when there was something new."""
        return self._pool.look_again(conversation_id)

    def clone(
        self, conversation_id: str, messages: tuple[ChatMessage, ...], copy_id: str, decay: float
    ) -> Cloned:
        """Copy what was read of a conversation's branch into another conversation, thinned out.

        messages: the path of the branch. decay: the part of the history that is kept, in (0, 1]; 1
        shares everything and copies nothing. System prompt, first and last tokens always stay.
        Raises: ValueError when decay is out of range, UnsupportedModelError where the memory cannot
            be thinned out, OutOfMemoryError, EngineError when the branch was not read yet.
        """
        source, num_matching = self._pool.best_match(conversation_id, messages)
        if source is None or num_matching < len(messages):
            raise EngineError("The model must read this conversation before it can be copied.")
        return self.cloning(self.torch_runner).clone(source, copy_id, decay)

    def snapshot(self, conversation_id: str) -> bool:
        """Queue what the store lacks of a conversation; True when there was something."""
        return any([self._pool.snapshot(s) for s in self._pool.sessions(conversation_id)])

    def rest(self, conversation_id: str) -> None:
        """Make a conversation that is not used now as small as its codec allows; it stays hot."""
        self._pool.rest(conversation_id)
        self._loaded.memory.trim()

    def release(self, conversation_id: str) -> None:
        """Give a conversation's hot memory back after saving it."""
        self._pool.release_conversation(conversation_id)
        self._loaded.memory.trim()

    def forget(self, conversation_id: str) -> None:
        """Drop a conversation's state everywhere, the store included."""
        self._pool.forget(conversation_id)
        self._loaded.memory.trim()

    def breakdown(self) -> MemoryBreakdown:
        """Return the real bytes by tier."""
        return self._loaded.memory.breakdown()

    def rates(self) -> Rates:
        """Return the measured rates."""
        return Rates(self._prefill_rate.value, self._decode_rate.value, self._restore_rate.value)

    def prompt_token_ids(self, messages: tuple[ChatMessage, ...]) -> list[int]:
        """Return the token ids of a conversation as a fresh session would read it.

        Raises: ChatTemplateError when the template refuses the messages.
        """
        plan = self._planner.plan(Session("", ""), messages)
        return [token for segment in plan.segments for token in segment.token_ids]

    def token_ids(self, text: str) -> list[int]:
        """Return the token ids of a plain text, as the start of a document."""
        return self._loaded.tokenizer.encode(text, add_special=True)

    def probe(self, kv_codec: KVCodec | None = None) -> Probe:
        """Return token-level access for measurements.

        kv_codec: over a memory of its own in this format, which nobody else sees; None: over the
        memory of the conversations.
        """
        loaded = self._loaded
        memory = loaded.memory
        spec = loaded.config.memory_spec(loaded.fingerprint)
        if kv_codec is not None:
            own = replace(self._config, kv_codec=kv_codec, context_length=loaded.context_length)
            memory = build_memory(spec, own, placement=loaded.placement)
        layers = [group.layers[0] for group in spec.groups]
        runner = self._runner_for(kv_codec or self._config.kv_codec)
        return Probe(memory, runner, self._config.prefill_chunk, table_layers=layers)

    @property
    def memory(self) -> Memory:
        """Return the memory of the conversations, for measurements."""
        return self._loaded.memory

    def cloning(self, make_runner: Callable[[], Runner]) -> Cloning:
        """Return what copies conversations. make_runner: ``torch_runner``, or one made already."""
        spec = self._loaded.config.memory_spec(self._loaded.fingerprint)
        return Cloning(self._loaded.memory, spec, self._pool, make_runner)

    def _runner_for(self, codec: KVCodec) -> Runner:
        """Return the runner in use where it knows the format, else one of torch."""
        runner = self._loaded.runner
        if isinstance(runner, NativeRunner) and not runner.knows(codec):
            return self.torch_runner()
        return runner

    def torch_runner(self) -> Runner:
        """Return a runner whose attention can be watched; native kernels look at nobody's view."""
        loaded = self._loaded
        if isinstance(loaded.runner, TorchRunner):
            return loaded.runner
        return TorchRunner(self._lazy_model(), "torch")

    def _lazy_model(self) -> Model:
        """Return the model as torch sees it; weights are unpacked where they are used."""
        loaded = self._loaded
        return load_model(loaded.file, loaded.config, Compute(), is_lazy=True)

    def unload(self) -> None:
        """Save every session and give all memory back; the engine must not be used afterwards."""
        self._pool.release_all()
        self._loaded.close()

    def _generation(
        self,
        request: GenerateRequest,
        index: int,
        prompt: Prompt,
        clock: Clock,
        is_cancelled: Callable[[], bool],
    ) -> Generation:
        loaded = self._loaded
        vocab_size = loaded.tokenizer.vocab_size
        num_spare = max(0, loaded.config.vocab_size - vocab_size)
        sampling = _seeded(request.sampling, index)
        parser = OutputParser(loaded.template)
        return Generation(
            request,
            prompt,
            decoder=self._decoder,
            sampler=Sampler(
                sampling,
                vocab_size,
                num_spare=num_spare,
                num_before=len(prompt.session.token_ids) - prompt.reply_start,
            ),
            text=ReplyText(
                loaded.tokenizer,
                parser,
                request.stop + loaded.template.stop_strings,
                continues=bool(prompt.continued_text),
            ),
            clock=clock,
            prefill_chunk=self._config.prefill_chunk,
            is_cancelled=is_cancelled,
        )

    def _measure(self, generation: Generation) -> None:
        self._prefill_rate.add(*generation.prefilled)
        self._decode_rate.add(*generation.decoded)
        self._restore_rate.add(*generation.restored)


def _seeded(sampling: SamplingParams, index: int) -> SamplingParams:
    """Return the parameters of reply number index: a chosen seed is another one for each."""
    if sampling.seed is None or index == 0:
        return sampling
    return replace(sampling, seed=sampling.seed + index)


def _info(loaded: LoadedModel, config: EngineConfig, *, can_roll: bool) -> EngineInfo:
    return EngineInfo(
        path=loaded.file.paths[0],
        name=loaded.name,
        architecture=loaded.config.architecture,
        size_bytes=loaded.file.size_bytes,
        num_parameters=loaded.num_parameters,
        quantisation=loaded.quantisation,
        context_length=loaded.context_length,
        trained_context_length=loaded.config.context_length,
        has_chat_template=not loaded.template.is_fallback,
        can_roll=can_roll,
        accelerator=str(find_accelerator(config.device) or ""),
        devices=tuple((str(d), n) for d, n in Counter(loaded.placement.layers).items()),
        kv_codec=config.kv_codec.value,
        kv_bytes_per_token=loaded.kv_bytes_per_token,
        block_size=loaded.block_size,
        compute=loaded.runner.description,
        num_threads=loaded.num_threads,
        fingerprint=loaded.fingerprint.hex(),
        load_ms=loaded.load_ms,
    )
