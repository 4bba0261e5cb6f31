"""Makes a request fit the context: leaves out what its policy says, or tells what could be done.

Sizes come from the log where it holds the messages, so that nothing is tokenised twice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from engine.config import ChatMessage, GenerateRequest, Overflow
from engine.events import ContextCut, OverflowOption, OverflowQuestion, RollRefusal
from engine.session.overflow import MessageSize, OverflowPlan, limit_of, plan_overflow
from engine.session.pool import SessionPool
from engine.session.prompt import PromptPlan, PromptPlanner
from engine.session.rolling import Rolling
from engine.session.session import Session

_POLICIES = (Overflow.DROP_OLDEST, Overflow.KEEP_ENDS, Overflow.ROLLING_WINDOW)


@dataclass(frozen=True, slots=True)
class Look:
    """Messages against the branch that holds most of them, or an empty one."""

    messages: tuple[ChatMessage, ...]
    known: Session | None
    base: Session
    plan: PromptPlan

    @property
    def num_tokens(self) -> int:
        """Tokens of the whole prompt."""
        return self.base.end_of(self.plan.num_kept) + self.plan.num_new_tokens

    def sizes(self) -> list[int]:
        """Return the tokens of each message, the reply's opening counted with the last."""
        spans = self.base.spans[: self.plan.num_kept]
        sizes = [span.end - span.start for span in spans]
        sizes += [len(s.token_ids) for s in self.plan.segments if s.digest is not None]
        if self.plan.continues or len(sizes) < len(self.messages):
            sizes += [0] * (len(self.messages) - len(sizes))
        sizes[-1] += self.num_tokens - sum(sizes)
        return sizes


class Trimmer:
    """Trims requests over one session pool."""

    def __init__(
        self, *, pool: SessionPool, planner: PromptPlanner, rolling: Rolling, context_length: int
    ) -> None:
        self._pool = pool
        self._planner = planner
        self._rolling = rolling
        self._context_length = context_length

    def look(self, conversation_id: str, messages: tuple[ChatMessage, ...]) -> Look:
        """Find out what of some messages was read. Raises: ChatTemplateError."""
        known, _ = self._pool.best_match(conversation_id, messages)
        base = known or Session(conversation_id, "")
        return Look(messages, known, base, self._planner.plan(base, messages))

    def trim(self, request: GenerateRequest) -> tuple[Look, ContextCut | None]:
        """Return what is to be read of a request, and what is left out of it.

        Raises: ChatTemplateError.
        """
        look = self.look(request.conversation_id, _without(request, request.dropped))
        plan = None
        if request.overflow is not Overflow.ASK and look.num_tokens > self._limit(request):
            plan = self._plan(request, look, request.overflow)
        if plan is None:
            cut = ContextCut(request.overflow, request.dropped) if request.dropped else None
            return look, cut
        refusal = None
        if request.overflow is Overflow.ROLLING_WINDOW:
            refusal = self._roll(request, plan)
        cut = ContextCut(request.overflow, plan.dropped, plan.dropped_tokens, refusal)
        return self.look(request.conversation_id, _without(request, plan.dropped)), cut

    def plan(self, request: GenerateRequest) -> OverflowPlan | None:
        """Return what the request's policy would leave out; None where it cannot help.

        Raises: ChatTemplateError.
        """
        look = self.look(request.conversation_id, _without(request, request.dropped))
        return self._plan(request, look, request.overflow)

    def question(self, request: GenerateRequest) -> OverflowQuestion | None:
        """Return what could be done about a request that does not fit; None where nothing need be.

        None as well where no policy helps. Changes nothing.
        Raises: ChatTemplateError.
        """
        look = self.look(request.conversation_id, _without(request, request.dropped))
        limit = self._limit(request)
        if look.num_tokens <= limit:
            return None
        plans = {policy: self._plan(request, look, policy) for policy in _POLICIES}
        if all(plan is None for plan in plans.values()):
            return None
        options = [self._option(request, policy, plan) for policy, plan in plans.items() if plan]
        return OverflowQuestion(look.num_tokens, limit, self._context_length, tuple(options))

    def _limit(self, request: GenerateRequest) -> int:
        return limit_of(self._context_length, request.max_tokens)

    def _plan(self, request: GenerateRequest, look: Look, policy: Overflow) -> OverflowPlan | None:
        known = iter(look.sizes())
        messages = [
            MessageSize(
                message.role,
                0 if index in request.dropped else next(known),
                is_pinned=index in request.pinned,
            )
            for index, message in enumerate(request.messages)
        ]
        return plan_overflow(policy, messages, self._limit(request), request.dropped)

    def _option(
        self, request: GenerateRequest, policy: Overflow, plan: OverflowPlan
    ) -> OverflowOption:
        dropped = tuple(index for index in plan.dropped if index not in request.dropped)
        reread: int = plan.unread_tokens
        refusal: RollRefusal | None = None
        if policy is Overflow.ROLLING_WINDOW:
            messages, kept = _relative(request, plan)
            ready = self._rolling.num_ready(request.conversation_id, messages, kept[:-1])
            if isinstance(ready, RollRefusal):
                refusal = ready
            else:
                reread = max(0, plan.history_tokens - ready)
        return OverflowOption(policy, dropped, plan.dropped_tokens, reread, refusal)

    def _roll(self, request: GenerateRequest, plan: OverflowPlan) -> RollRefusal | None:
        messages, kept = _relative(request, plan)
        return self._rolling.roll(request.conversation_id, messages, kept)


def _without(request: GenerateRequest, dropped: Collection[int]) -> tuple[ChatMessage, ...]:
    return tuple(message for at, message in enumerate(request.messages) if at not in dropped)


def _relative(
    request: GenerateRequest, plan: OverflowPlan
) -> tuple[tuple[ChatMessage, ...], list[int]]:
    """Return the messages seen up to now, and which of them stay, by index among these."""
    seen = [at for at in range(len(request.messages)) if at not in request.dropped]
    kept = set(plan.kept)
    return _without(request, request.dropped), [n for n, at in enumerate(seen) if at in kept]
