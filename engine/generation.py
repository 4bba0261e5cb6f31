"""One reply: read what the memory lacks, then draw tokens one by one, telling events as it goes.

Owns nothing: the session keeps the log, the memory the state. Whatever happens in between, what was
computed stays valid and the log says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from engine.config import ChatMessage, GenerateRequest
from engine.decoder import Decoded, Decoder
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
    Waiting,
)
from engine.memory.interface import Match, Memory
from engine.runner import Logits
from engine.sampling import Sampler
from engine.session.session import Session, message_digest
from engine.text.reply import ReplyText

SNAPSHOT_EVERY_TOKENS = 64

# What one step of a reply has to tell: often one event, sometimes none.
Events = tuple[GenerateEvent, ...]


@dataclass(slots=True)
class Clock:
    """Milliseconds since the request, and what was spent on what.

    num_passes, num_rows: of the passes that evaluated a token of this reply, and of their rows.
    """

    started: float = field(default_factory=time.perf_counter)
    restore_ms: float = 0.0
    prefill_ms: float = 0.0
    first_token_ms: float = 0.0
    decode_seconds: float = 0.0
    num_passes: int = 0
    num_rows: int = 0

    def count(self, decoded: Decoded) -> None:
        """Add a pass that evaluated one token."""
        self.decode_seconds += decoded.seconds
        self.num_passes += 1
        self.num_rows += decoded.num_rows

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
    """The life of one reply: read, decode, close, finish; each once, close as often as you like."""

    def __init__(
        self,
        request: GenerateRequest,
        prompt: Prompt,
        *,
        decoder: Decoder,
        sampler: Sampler,
        text: ReplyText,
        clock: Clock,
        prefill_chunk: int,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self.prompt = prompt
        self._request = request
        self._session = prompt.session
        self._decoder = decoder
        self._memory = decoder.memory
        self._pool = decoder.pool
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
        self._is_closed = False

    @property
    def decoded(self) -> tuple[int, float]:
        """Tokens drawn after the first and the seconds that took."""
        return max(0, len(self._generated) - 1), self._clock.decode_seconds

    @property
    def prefilled(self) -> tuple[int, float]:
        """Prompt tokens read and the seconds that took."""
        return self._prompt_tokens - self.prompt.match.total, self._clock.prefill_ms / 1000.0

    @property
    def restored(self) -> tuple[int, float]:
        """Prompt tokens brought back from the store and the seconds that took; 0, 0 for none."""
        cold = self.prompt.match.cold
        return cold, self._clock.restore_ms / 1000.0 if cold else 0.0

    def read(self) -> Generator[Events, None, Logits | None]:
        """Read what the memory lacks of the prompt; the logits (V,) of its last token.

        Yields after each chunk. None: cancelled. Raises: OutOfMemoryError.
        """
        if self.prompt.cut is not None:
            yield (self.prompt.cut,)
        logits = yield from self._read()
        if logits is not None:
            pin_system_prompt(self._memory, self._session, self._request)
            self._save()
        return logits

    def decode(self, logits: Logits) -> Generator[Events, None, FinishReason]:
        """Draw tokens until the model, the caller or the budget ends the reply.

        Yields once for each token that others may be evaluated with. Raises: OutOfMemoryError.
        """
        while not self._is_cancelled():
            token = self._draw(logits)
            if self._text.ends_turn(token) and not self._request.ignore_eos:
                yield self._deltas(self._text.flush())
                return FinishReason.STOP
            self._session.append((token,))
            events = self._deltas(self._text.push(token))
            if self._text.is_stopped:
                yield events
                return FinishReason.STOP
            if len(self._generated) >= self.prompt.max_tokens:
                yield events + self._deltas(self._text.flush())
                return FinishReason.LENGTH
            next_logits = yield from self._next_logits(events)
            if next_logits is None:
                break
            logits = next_logits
        return FinishReason.CANCELLED

    def close(self) -> None:
        """Make a message of the reply so far and queue its snapshot."""
        if self._is_closed:
            return
        self._is_closed = True
        self._decoder.withdraw(self._session)
        if not self._generated and not self.prompt.continued_text:
            self._take_back_opening()
            return
        digest = message_digest(ChatMessage("assistant", "".join(self._visible)))
        self._session.close_span(digest, self.prompt.reply_start, is_open=True)
        self._save()

    def finished(self, reason: FinishReason) -> Finished:
        """Return the last event of the reply."""
        match, clock = self.prompt.match, self._clock
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
                clock.num_rows / clock.num_passes if clock.num_passes else 1.0,
            ),
            miss_reason=self.prompt.miss_reason,
            warnings=self.prompt.warnings,
            dropped_messages=self.prompt.cut.dropped if self.prompt.cut else (),
        )

    def _read(self) -> Generator[Events, None, Logits | None]:
        """Evaluate the log as far as the memory lacks it; the logits (V,) of its last token."""
        logits: Logits | None = None
        total = len(self._session.token_ids)
        while (position := self._position()) < total:
            if self._is_cancelled():
                return None
            end = self._chunk_end(position, total)
            if not self._pool.allocate(self._session, end - position):
                yield (Waiting(),)
                continue
            logits = self._evaluate(position, end, wants_logits=end == total)
            self._keep_border(end)
            yield (PrefillProgress(end, total, self.prompt.match.total),)
        return logits

    def _evaluate(self, start: int, end: int, *, wants_logits: bool) -> Logits | None:
        started = time.perf_counter()
        logits = self._decoder.evaluate(self._session, start, end, wants_logits=wants_logits)
        self._clock.prefill_ms += (time.perf_counter() - started) * 1000.0
        return logits

    def _position(self) -> int:
        """Return how much of the log is in place, bringing back what was given up meanwhile."""
        if self._session.sequence is None:
            self._pool.bring_back(self._session)
            pin_system_prompt(self._memory, self._session, self._request)
            self._pool.attach(self._session)
        return self._pool.resident_length(self._session)

    def _chunk_end(self, position: int, total: int) -> int:
        """Return where the chunk from position ends: at borders, where the memory asks for them."""
        end = min(total, position + self._prefill_chunk)
        spacing = self._memory.checkpoint_spacing
        if spacing == 0:
            return end
        borders = (border for border in self._borders if border > position)
        return min(end, (position // spacing + 1) * spacing, *borders)

    def _keep_border(self, length: int) -> None:
        """Let the conversation be branched here, where a message ends or the reply begins."""
        if length in self._borders and self._session.sequence is not None:
            self._memory.checkpoint(self._session.sequence)

    def _draw(self, logits: Logits) -> int:
        token = self._sampler.sample(logits, self._session.token_ids)
        self._generated.append(token)
        if len(self._generated) == 1:
            self._clock.first_token_ms = self._clock.elapsed_ms()
        return token

    def _next_logits(self, events: Events) -> Generator[Events, None, Logits | None]:
        """Yield the events while others submit as well; the logits (V,) behind the last token.

        None: cancelled while it was read again.
        """
        session = self._session
        if self._pool.resident_length(session) == len(session.token_ids) - 1:
            if self._pool.allocate(session, 1):
                self._decoder.submit(session, num_sure=self._sampler.num_sure)
            yield events
            decoded = self._decoder.take(session)
        else:
            yield events
            decoded = None
        if decoded is None:  # the memory was needed elsewhere
            return (yield from self._read())
        self._clock.count(decoded)
        if len(self._generated) % SNAPSHOT_EVERY_TOKENS == 0:
            self._save()
        return decoded.logits

    def _deltas(self, pieces: list[tuple[Channel, str]]) -> Events:
        self._visible += [text for channel, text in pieces if channel is Channel.CONTENT]
        return tuple(TextDelta(text, channel, len(self._generated)) for channel, text in pieces)

    def _take_back_opening(self) -> None:
        """Remove the opening of a reply of which nothing was drawn."""
        session, start = self._session, self.prompt.reply_start
        del session.token_ids[start:]
        if session.sequence is not None and self._memory.length(session.sequence) > start:
            self._memory.truncate(session.sequence, start)

    def _save(self) -> None:
        if not self._request.ephemeral:
            self._pool.snapshot(self._session)


def pin_system_prompt(memory: Memory, session: Session, request: GenerateRequest) -> None:
    """Let the system prompt of a session stay exact, and be given up last: many begin with it.

    Before it is attached or read, or it would be quantised; and again once it is in place.
    """
    if request.messages[0].role == "system" and session.sequence is not None:
        memory.pin(session.sequence, session.end_of(1))
