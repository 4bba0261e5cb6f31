"""From a request to a session whose log holds the whole prompt, with all that is reusable in place.

This is where reuse is decided and accounted for: which branch is continued or forked, what the
tiers give, and why the rest must be read again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.config import GenerateRequest
from engine.errors import ContextOverflowError
from engine.events import ContextCut, MissCause, MissReason
from engine.generation import Clock, Prompt, pin_system_prompt
from engine.memory.interface import Match, Memory
from engine.session.pool import SessionPool
from engine.session.prompt import PromptPlan
from engine.session.session import Session
from engine.session.trimming import Trimmer
from engine.text.tokenizer import Tokenizer

_CONTEXT_TOKENS = 12


class Preparation:
    """Prepares prompts over one session pool."""

    def __init__(
        self,
        *,
        memory: Memory,
        pool: SessionPool,
        trimmer: Trimmer,
        tokenizer: Tokenizer,
        context_length: int,
        block_size: int,
    ) -> None:
        self._memory = memory
        self._pool = pool
        self._trimmer = trimmer
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._block_size = block_size

    def prepare(self, request: GenerateRequest, clock: Clock) -> Prompt:
        """Return the prompt of a request; its session's log and sequence are ready to be read.

        Raises: ContextOverflowError when the prompt leaves no room for a reply, ChatTemplateError.
        """
        look, cut = self._trimmer.trim(request)
        request = replace(request, messages=look.messages)
        known, plan, num_tokens = look.known, look.plan, look.num_tokens
        self._check_fits(num_tokens)
        history = self._history(request, known, plan)
        started = time.perf_counter()
        session, brought_back = self._session_for(request, known, plan)
        reply_start = _append(session, plan)
        self._pool.rest_idle(session)
        match = self._attach(session, request, brought_back)
        clock.restore_ms = (time.perf_counter() - started) * 1000.0
        return Prompt(
            session=session,
            reply_start=reply_start,
            continued_text=request.messages[-1].content if _is_continued(request) else "",
            match=match,
            miss_reason=self._miss_reason(session, plan, history, match, cut),
            max_tokens=self._max_tokens(request, num_tokens),
            cut=cut,
        )

    def _check_fits(self, num_tokens: int) -> None:
        if num_tokens >= self._context_length:
            raise ContextOverflowError(num_tokens, self._context_length)

    def _max_tokens(self, request: GenerateRequest, num_tokens: int) -> int:
        room = self._context_length - num_tokens
        return room if request.max_tokens is None else max(1, min(room, request.max_tokens))

    def _session_for(
        self, request: GenerateRequest, known: Session | None, plan: PromptPlan
    ) -> tuple[Session, Match]:
        """Return the session to append to, cut to what is kept, and what bringing it back gave."""
        if known is None or plan.num_kept == 0:
            if request.ephemeral:
                return Session(request.conversation_id, ""), Match()
            return self._pool.new_session(request.conversation_id), Match()
        match = self._pool.bring_back(known)
        if request.ephemeral:
            return self._pool.detached_fork(known, plan.num_kept), match
        if plan.num_kept < len(known.spans) or known.is_growing:
            return self._pool.branch_off(known, plan.num_kept), match
        del known.token_ids[known.end_of(plan.num_kept) :]
        return known, match

    def _attach(self, session: Session, request: GenerateRequest, brought_back: Match) -> Match:
        """Put every reusable token in place; at least the last one stays to be evaluated."""
        if session.sequence is None:
            session.sequence = self._memory.create()
        pin_system_prompt(self._memory, session, request)
        found = self._pool.attach(session)
        length = self._memory.length(session.sequence)
        cold = min(length, brought_back.cold + found.cold)
        warm = min(length - cold, brought_back.warm + found.warm)
        return Match(
            hot=length - cold - warm,
            warm=warm,
            cold=cold,
            restore_ms=brought_back.restore_ms + found.restore_ms,
            damaged=brought_back.damaged + found.damaged,
        )

    def _history(
        self, request: GenerateRequest, known: Session | None, plan: PromptPlan
    ) -> _History:
        """Remember the log before it is touched; where no branch fits, the latest one."""
        sessions = self._pool.sessions(request.conversation_id)
        log = known or max(sessions, key=lambda session: session.last_used, default=None)
        if log is None:
            return _History([], 0, is_known=False, is_changed=False)
        comparable = min(len(log.spans), len(request.messages))
        return _History(
            list(log.token_ids),
            log.end_of(plan.num_kept),
            is_known=True,
            is_changed=plan.num_matching < comparable,
        )

    def _miss_reason(
        self,
        session: Session,
        plan: PromptPlan,
        history: _History,
        match: Match,
        cut: ContextCut | None,
    ) -> MissReason | None:
        cause = self._miss_cause(plan, history, match)
        if cause is None:
            return None
        position = match.total
        if cause is MissCause.HISTORY_CHANGED:
            is_cut = cut is not None and cut.dropped_tokens > 0
            cause = MissCause.CONTEXT_FULL if is_cut else cause
            position = _common_length(history.token_ids, session.token_ids)
        window = slice(position, position + _CONTEXT_TOKENS)
        return MissReason(
            cause,
            position,
            expected=self._tokenizer.decode(history.token_ids[window]),
            found=self._tokenizer.decode(session.token_ids[window]),
        )

    def _miss_cause(self, plan: PromptPlan, history: _History, match: Match) -> MissCause | None:
        if match.total < history.kept_tokens - self._block_size:
            return MissCause.DAMAGED if match.damaged else MissCause.EVICTED
        if plan.num_kept < plan.num_matching:
            return MissCause.TEMPLATE_REWRITES_HISTORY
        if history.is_changed:
            return MissCause.HISTORY_CHANGED
        return None if history.is_known else MissCause.NEW_CONVERSATION


@dataclass(frozen=True, slots=True)
class _History:
    """What the log held before it was touched: enough to explain a miss."""

    token_ids: list[int]
    kept_tokens: int
    is_known: bool
    is_changed: bool


def _common_length(one: Sequence[int], other: Sequence[int]) -> int:
    for position, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return position
    return min(len(one), len(other))


def _is_continued(request: GenerateRequest) -> bool:
    return request.messages[-1].role == "assistant"


def _append(session: Session, plan: PromptPlan) -> int:
    """Append the plan's tokens to the log; return where the reply starts."""
    if plan.continues:
        return session.spans.pop().start
    reply_start: int | None = None
    for segment in plan.segments:
        start = len(session.token_ids)
        session.append(segment.token_ids)
        if segment.digest is not None:
            session.close_span(segment.digest, start, is_open=False)
        elif reply_start is None:
            reply_start = start
    return len(session.token_ids) if reply_start is None else reply_start
