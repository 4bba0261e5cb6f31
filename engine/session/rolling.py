"""Rolls a conversation's window: what is kept of its log moves to the front, state and all.

Finds out which tokens of the log make up the kept messages, lets the memory move their state, and
makes a branch of it. What the chat template puts around messages stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import ChatMessage
from engine.events import RollRefusal
from engine.memory.attention import PagedAttentionMemory
from engine.memory.interface import AttentionGroup, Memory
from engine.models import Model
from engine.session.pool import SessionPool
from engine.session.prompt import PromptPlanner
from engine.session.session import MessageSpan, Session


@dataclass(frozen=True, slots=True)
class RolledLog:
    """Where the tokens of a rolled log stood before, ascending, and the messages it is made of."""

    places: tuple[int, ...]
    spans: tuple[MessageSpan, ...]


class Rolling:
    """Rolls sessions of one pool.

    make_model: returns the model, for its rotary embeddings only; asked once, when it is needed.
    """

    def __init__(
        self,
        memory: Memory,
        pool: SessionPool,
        planner: PromptPlanner,
        make_model: Callable[[], Model],
    ) -> None:
        self._memory = memory
        self._pool = pool
        self._planner = planner
        self._make_model = make_model
        self._mover: KeyMover | None = None

    @property
    def refusal(self) -> RollRefusal | None:
        """Return why this model's conversations cannot be rolled; None where they can."""
        is_attention = isinstance(self._memory, PagedAttentionMemory)
        return None if is_attention else RollRefusal.RECURRENT

    def num_ready(
        self, conversation_id: str, messages: Sequence[ChatMessage], kept: Sequence[int]
    ) -> int | RollRefusal:
        """Return how many tokens of the kept messages would not be read again; changes nothing.

        kept: indices of messages, ascending.
        """
        if self.refusal is not None:
            return self.refusal
        source, num_matching = self._pool.best_match(conversation_id, messages)
        if source is None:
            return 0
        rolled = roll_log(source, messages, _first(kept, num_matching), self._planner)
        if rolled is None:
            return RollRefusal.NO_BORDER
        ready = max(self._pool.resident_length(source), source.num_stored)
        return sum(place < ready for place in rolled.places)

    def roll(
        self, conversation_id: str, messages: Sequence[ChatMessage], kept: Sequence[int]
    ) -> RollRefusal | None:
        """Make a branch of the kept messages, as far as they were read; None when that was done.

        Where nothing was read there is nothing to move, and no refusal either.
        """
        if self.refusal is not None:
            return self.refusal
        source, num_matching = self._pool.best_match(conversation_id, messages)
        if source is None:
            return None
        rolled = roll_log(source, messages, _first(kept, num_matching), self._planner)
        if rolled is None:
            return RollRefusal.NO_BORDER
        return self._move(source, rolled)

    def _move(self, source: Session, rolled: RolledLog) -> RollRefusal | None:
        memory = self._memory
        assert isinstance(memory, PagedAttentionMemory)
        self._pool.bring_back(source)
        self._pool.attach(source)
        assert source.sequence is not None
        length = memory.length(source.sequence)
        if memory.num_places(source.sequence) != length:
            return RollRefusal.THINNED
        places = [place for place in rolled.places if place < length]
        if places == list(range(len(places))):
            return None  # nothing moves: what stays is a beginning, which branches share anyway
        if not memory.can_roll(source.sequence, places):
            return RollRefusal.WINDOW_GONE
        self._pool.snapshot(source)
        sequence, source.sequence = source.sequence, None
        with _one_thread():
            moved = memory.roll(
                sequence,
                places,
                move_keys=self._move_keys,
                make_room=lambda: self._pool.make_room(source),
            )
        if moved is None:
            return RollRefusal.NO_ROOM
        token_ids = [source.token_ids[place] for place in rolled.places]
        self._pool.adopt_log(source.conversation_id, token_ids, rolled.spans, moved)
        return None

    def _move_keys(self, group: AttentionGroup, keys: Tensor, distances: Tensor) -> None:
        if self._mover is None:
            self._mover = KeyMover(self._make_model())
        self._mover.move(group, keys, distances)


class KeyMover:
    """Rotates keys as if they had been computed at other positions."""

    def __init__(self, model: Model) -> None:
        kinds = model.config.layer_types
        turns = (block.has_rope for block in model.blk)
        self._ropes = {
            layer: model.ropes[kinds[layer]] for layer, has_rope in enumerate(turns) if has_rope
        }

    def move(self, group: AttentionGroup, keys: Tensor, distances: Tensor) -> None:
        """Rotate keys (L, K, T, D) float32 of a group in place, by distances (T,) int64."""
        slots = [slot for slot, layer in enumerate(group.layers) if layer in self._ropes]
        if not slots:
            return
        # All layers of a group are of one kind, and so turn alike.
        rope = self._ropes[group.layers[slots[0]]]
        part = keys[slots]
        rows = part.permute(2, 0, 1, 3).flatten(1, 2).contiguous()
        rope.move(distances.cpu()).on(rows.device).apply_(rows)
        keys[slots] = torch.unflatten(rows, 1, part.shape[:2]).permute(1, 2, 0, 3)


def roll_log(
    session: Session,
    messages: Sequence[ChatMessage],
    kept: Sequence[int],
    planner: PromptPlanner,
) -> RolledLog | None:
    """Return what the kept messages are made of; None where the template leaves no clean border.

    kept: indices of messages that the log holds, ascending.
    Raises: ChatTemplateError.
    """
    num_head = next((at for at, index in enumerate(kept) if at != index), len(kept))
    log = _LogBuilder(session, messages, planner)
    is_bare = all(messages[index].role == "system" for index in range(num_head))
    is_built = True
    if is_bare and num_head < len(kept):
        is_built = log.begin_anew(num_head, kept[num_head])
        num_head += 1
    else:
        log.take(range(num_head))
    for index in kept[num_head:]:
        is_built = is_built and log.append(index)
    return log.build() if is_built else None


class _LogBuilder:
    """Puts a log together from pieces of another one."""

    def __init__(
        self, session: Session, messages: Sequence[ChatMessage], planner: PromptPlanner
    ) -> None:
        self._session = session
        self._messages = messages
        self._planner = planner
        self._places: list[int] = []
        self._spans: list[MessageSpan] = []
        self._last: int | None = None

    def build(self) -> RolledLog:
        return RolledLog(tuple(self._places), tuple(self._spans))

    def take(self, indices: range) -> None:
        """Append messages as they stand in the log."""
        for index in indices:
            span = self._session.spans[index]
            self._add(index, range(span.start, span.end))

    def begin_anew(self, num_system: int, first: int) -> bool:
        """Begin with the system messages and the first one kept, as a new chat would.

        That text must stand in the log: its start at the log's own, its end in that message.
        """
        shown = [*self._messages[:num_system], self._messages[first]]
        segments = [s for s in self._planner.plan(Session("", ""), shown).segments if s.digest]
        wanted = [token for segment in segments for token in segment.token_ids]
        log, span = self._session.token_ids, self._session.spans[first]
        num_same = _common_length(wanted, log)
        num_own = _common_length(wanted[::-1], log[span.start : span.end][::-1])
        if num_same + num_own < len(wanted):
            return False
        rest = len(wanted) - num_same
        places = [*range(num_same), *range(span.end - rest, span.end)]
        position = 0
        for index, segment in zip([*range(num_system), first], segments, strict=True):
            end = position + len(segment.token_ids)
            self._add(index, places[position:end])
            position = end
        return True

    def append(self, index: int) -> bool:
        """Append a message; what stood before it may be gone."""
        span = self._session.spans[index]
        start, before = span.start, self._last
        if before is not None and before != index - 1:
            is_open = self._session.spans[before].is_open
            was_open = self._session.spans[index - 1].is_open
            if was_open and not is_open:
                closing = self._closing(index)
                if closing is None:
                    return False
                start += len(closing)
            elif is_open and not was_open:
                closing = self._closing(before + 1)
                if closing is None:
                    return False
                self._add(index, [*closing, *range(start, span.end)])
                return True
        self._add(index, range(start, span.end))
        return True

    def _closing(self, index: int) -> range | None:
        """Return where, at the start of a message, the closing of the one before it stands."""
        closing = self._planner.closing_token_ids(self._messages[:index])
        start = self._session.spans[index].start
        end = start + len(closing)
        is_there = tuple(self._session.token_ids[start:end]) == closing
        return range(start, end) if is_there else None

    def _add(self, index: int, places: Sequence[int]) -> None:
        start = len(self._places)
        self._places.extend(places)
        span = self._session.spans[index]
        self._spans.append(MessageSpan(span.digest, start, len(self._places), span.is_open))
        self._last = index


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to this thread: for the few numbers of a block, waking others costs more."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _first(kept: Sequence[int], num_matching: int) -> list[int]:
    return [index for index in kept if index < num_matching]


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))
