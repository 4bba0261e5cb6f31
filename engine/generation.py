"""One reply: read what the memory lacks, then draw tokens one by one, telling events as it goes.

Owns nothing: the session keeps the log, the memory the state. Whatever happens in between, what was
computed stays valid and the log says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from torch import Tensor

from engine.config import ChatMessage, GenerateRequest
from engine.events import (
    Channel,
    ContextCut,
    Finished,
    FinishReason,
    GenerateEvent,
    MissReason,
    PrefillProgress,
    ReusedTokens,
    TextDelta,
    Timing,
    Usage,
)
from engine.memory.interface import Match, Memory
from engine.runner import Runner
from engine.sampling import Sampler
from engine.session.pool import SessionPool
from engine.session.session import Session, message_digest
from engine.text.reply import ReplyText

SNAPSHOT_EVERY_TOKENS = 64


@dataclass(slots=True)
class Clock:
    """Milliseconds since the request, and what was spent on what."""

    started: float = field(default_factory=time.perf_counter)
    restore_ms: float = 0.0
    prefill_ms: float = 0.0
    first_token_ms: float = 0.0
    decode_seconds: float = 0.0

    def elapsed_ms(self) -> float:
        """Return the milliseconds since the request."""
        return (time.perf_counter() - self.started) * 1000.0


@dataclass(slots=True)
class Prompt:
    """A session whose log holds the whole prompt, and how it came to be.

    reply_start: log position where the reply's opening begins. continued_text: visible text of the
    reply that goes on. match: tokens in memory before anything was read. cut: what was left out
    because the conversation is too long.
    """

    session: Session
    reply_start: int
    continued_text: str
    match: Match
    miss_reason: MissReason | None
    max_tokens: int
    warnings: tuple[str, ...] = ()
    cut: ContextCut | None = None


class Generation:
    """The life of one reply; ``run`` may be used once."""

    def __init__(
        self,
        request: GenerateRequest,
        prompt: Prompt,
        *,
        memory: Memory,
        pool: SessionPool,
        runner: Runner,
        sampler: Sampler,
        text: ReplyText,
        clock: Clock,
        prefill_chunk: int,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._request = request
        self._prompt = prompt
        self._session = prompt.session
        self._memory = memory
        self._pool = pool
        self._runner = runner
        self._sampler = sampler
        self._text = text
        self._clock = clock
        self._prefill_chunk = prefill_chunk
        self._is_cancelled = is_cancelled
        self._prompt_tokens = len(self._session.token_ids)
        spans = self._session.spans
        self._borders = {prompt.reply_start, *(span.end for span in spans)}
        self._generated: list[int] = []
        self._visible: list[str] = [prompt.continued_text]

    def run(self) -> Iterator[GenerateEvent]:
        """Yield the events of the reply; closing the iterator cancels.

        Raises: OutOfMemoryError when the state does not fit the budget.
        """
        if self._prompt.cut is not None:
            yield self._prompt.cut
        try:
            reason = yield from self._prefill_and_decode()
        finally:
            self._close_log()
        yield self._finished(reason)

    @property
    def decoded(self) -> tuple[int, float]:
        """Tokens drawn after the first and the seconds that took."""
        return max(0, len(self._generated) - 1), self._clock.decode_seconds

    @property
    def prefilled(self) -> tuple[int, float]:
        """Prompt tokens read and the seconds that took."""
        return self._prompt_tokens - self._prompt.match.total, self._clock.prefill_ms / 1000.0

    def _prefill_and_decode(self) -> Generator[GenerateEvent, None, FinishReason]:
        started = time.perf_counter()
        logits = yield from self._prefill()
        self._clock.prefill_ms = (time.perf_counter() - started) * 1000.0
        if logits is None:
            return FinishReason.CANCELLED
        return (yield from self._decode(logits))

    def _prefill(self) -> Generator[GenerateEvent, None, Tensor | None]:
        """Read the prompt in chunks; the logits (V,) of its last token, None when cancelled."""
        total = self._prompt_tokens
        logits: Tensor | None = None
        position = self._pool.resident_length(self._session)
        while position < total:
            if self._is_cancelled():
                return None
            end = self._chunk_end(position)
            logits = self._evaluate(position, end, wants_logits=end == total)
            self._keep_border(end)
            position = end
            yield PrefillProgress(end, total, self._prompt.match.total)
        self._pin_system_prompt()
        self._save()
        return logits

    def _chunk_end(self, position: int) -> int:
        """Return where the chunk from position ends: at borders, where the memory asks for them."""
        end = min(self._prompt_tokens, position + self._prefill_chunk)
        spacing = self._memory.checkpoint_spacing
        if spacing == 0:
            return end
        borders = (border for border in self._borders if border > position)
        return min(end, (position // spacing + 1) * spacing, *borders)

    def _keep_border(self, length: int) -> None:
        """Let the conversation be branched here, where a message ends or the reply begins."""
        if length in self._borders and self._session.sequence is not None:
            self._memory.checkpoint(self._session.sequence)

    def _pin_system_prompt(self) -> None:
        """Many conversations begin with it: it goes last when room is needed."""
        session = self._session
        if self._request.messages[0].role == "system" and session.sequence is not None:
            self._memory.pin(session.sequence, session.end_of(1))

    def _decode(self, logits: Tensor) -> Generator[GenerateEvent, None, FinishReason]:
        """Draw tokens until the model, the caller or the budget ends the reply."""
        while True:
            if self._is_cancelled():
                return FinishReason.CANCELLED
            token = self._draw(logits)
            if self._text.ends_turn(token):
                yield from self._flush()
                return FinishReason.STOP
            self._session.append((token,))
            yield from self._deltas(self._text.push(token))
            if self._text.is_stopped:
                return FinishReason.STOP
            if len(self._generated) >= self._prompt.max_tokens:
                yield from self._flush()
                return FinishReason.LENGTH
            logits = self._next_logits()

    def _draw(self, logits: Tensor) -> int:
        token = self._sampler.sample(logits, self._session.token_ids)
        self._generated.append(token)
        if len(self._generated) == 1:
            self._clock.first_token_ms = self._clock.elapsed_ms()
        return token

    def _next_logits(self) -> Tensor:
        started = time.perf_counter()
        length = len(self._session.token_ids)
        logits = self._evaluate(length - 1, length, wants_logits=True)
        assert logits is not None
        self._clock.decode_seconds += time.perf_counter() - started
        if len(self._generated) % SNAPSHOT_EVERY_TOKENS == 0:
            self._save()
        return logits

    def _evaluate(self, start: int, end: int, *, wants_logits: bool) -> Tensor | None:
        """Run the model over log[start:end]; the logits (V,) of the last row where wanted."""
        session = self._session
        self._pool.allocate(session, end - start)
        assert session.sequence is not None
        view = self._memory.step([(session.sequence, end - start)])
        token_ids = session.token_ids[start:end]
        logits = self._runner.forward(token_ids, start, view, wants_logits=wants_logits)
        self._memory.commit(session.sequence, token_ids)
        return logits

    def _deltas(self, pieces: list[tuple[Channel, str]]) -> Iterator[GenerateEvent]:
        for channel, text in pieces:
            if channel is Channel.CONTENT:
                self._visible.append(text)
            yield TextDelta(text, channel, len(self._generated))

    def _flush(self) -> Iterator[GenerateEvent]:
        yield from self._deltas(self._text.flush())

    def _close_log(self) -> None:
        """Make a message of the reply so far and queue its snapshot."""
        session, start = self._session, self._prompt.reply_start
        if not self._generated and not self._prompt.continued_text:
            self._take_back_opening()
            return
        content = "".join(self._visible)
        digest = message_digest(ChatMessage("assistant", content))
        session.close_span(digest, start, is_open=True)
        self._save()

    def _take_back_opening(self) -> None:
        """Remove the opening of a reply of which nothing was drawn."""
        session, start = self._session, self._prompt.reply_start
        del session.token_ids[start:]
        if session.sequence is not None and self._memory.length(session.sequence) > start:
            self._memory.truncate(session.sequence, start)

    def _save(self) -> None:
        if not self._request.ephemeral:
            self._pool.snapshot(self._session)

    def _finished(self, reason: FinishReason) -> Finished:
        match, clock = self._prompt.match, self._clock
        num_decoded, seconds = self.decoded
        return Finished(
            finish_reason=reason,
            token_ids=tuple(self._generated),
            usage=Usage(
                self._prompt_tokens,
                ReusedTokens(match.hot, match.warm, match.cold),
                len(self._generated),
            ),
            timing=Timing(
                clock.restore_ms,
                clock.prefill_ms,
                clock.first_token_ms,
                num_decoded / seconds if seconds > 0 else 0.0,
            ),
            miss_reason=self._prompt.miss_reason,
            warnings=self._prompt.warnings,
            dropped_messages=self._prompt.cut.dropped if self._prompt.cut else (),
        )
