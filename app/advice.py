"""What could be better about the cache, judged from measured numbers. Pure functions.

Every rule wants enough evidence first: advice that comes and goes is worse than none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from app.conversation import ReplyStats
from app.events import Advice, AdviceKind
from engine.events import MissCause

_MIB = 1 << 20

LOW_REUSE_RATE = 0.6
_MIN_TURNS = 5
_MIN_PROMPT_TOKENS = 1_000

_JITTER_FACTOR = 2.0
_MIN_TIMED_TURNS = 8
_MIN_REPLY_TOKENS = 16
# Replies that grow together are slower each, which is no jitter.
_MOST_SHARING = 1.1

# The first turns allocate what all later ones use again.
_SETTLED_AFTER_TURNS = 5
_MIN_LEAK_TURNS = 6
_MIN_LEAK_BYTES = 256 * _MIB

# Restoring pays where it is at least this much faster than reading.
_MIN_RESTORE_FACTOR = 2.0

_SETTING_FOR = {
    MissCause.EVICTED: "cold_budget_bytes",
    MissCause.BELOW_BLOCK: "block_size",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What the rules look at.

    turns: the last replies, oldest first. unexplained_bytes: after each turn, the process's own
    memory less what its tiers hold. Rates in tokens per second, 0 before the first measurement.
    cold_problem: why nothing is being kept now; "" when all is well.
    """

    turns: Sequence[ReplyStats] = ()
    unexplained_bytes: Sequence[int] = ()
    hot_bytes: int = 0
    prefill_tokens_per_second: float = 0.0
    restore_tokens_per_second: float = 0.0
    cold_problem: str = ""
    cold_budget_bytes: int = 0
    is_keeping: bool = True


def advise(measured: Measured) -> tuple[Advice, ...]:
    """Return the advice that the numbers support, the most important first."""
    rules = (not_kept, low_reuse, slow_disk, leak, jitter)
    return tuple(advice for rule in rules if (advice := rule(measured)) is not None)


def not_kept(measured: Measured) -> Advice | None:
    """Tell that nothing is being kept although it should be."""
    if not measured.cold_problem:
        return None
    values = (("cold_budget_bytes", float(measured.cold_budget_bytes)),)
    return Advice(AdviceKind.NOT_KEPT, values, "store_folder")


def low_reuse(measured: Measured) -> Advice | None:
    """Tell that known text is read again; first turns of new conversations do not count."""
    turns = [turn for turn in measured.turns if _cause(turn) is not MissCause.NEW_CONVERSATION]
    prompt = sum(turn.usage.prompt_tokens for turn in turns)
    if len(turns) < _MIN_TURNS or prompt < _MIN_PROMPT_TOKENS:
        return None
    rate = sum(turn.usage.reused.total for turn in turns) / prompt
    if rate >= LOW_REUSE_RATE:
        return None
    values = (("reuse_rate", rate), ("num_turns", float(len(turns))))
    setting = _setting_for(turns) if measured.is_keeping else "keep_conversations_ready"
    return Advice(AdviceKind.LOW_REUSE, values, setting)


def slow_disk(measured: Measured) -> Advice | None:
    """Tell that the disk gives states back hardly faster than the model reads."""
    restored, read = measured.restore_tokens_per_second, measured.prefill_tokens_per_second
    if not restored or not read or restored >= _MIN_RESTORE_FACTOR * read:
        return None
    values = (("restored_tokens_per_second", restored), ("read_tokens_per_second", read))
    return Advice(AdviceKind.SLOW_DISK, values, "store_folder")


def leak(measured: Measured) -> Advice | None:
    """Tell that memory grows with every turn beyond what the tiers hold."""
    samples = measured.unexplained_bytes[_SETTLED_AFTER_TURNS:]
    if len(samples) < _MIN_LEAK_TURNS:
        return None
    held = samples[-1] - samples[0]
    steps = [after - before for before, after in pairwise(samples)]
    if held < _MIN_LEAK_BYTES or min(steps) < 0:
        return None
    values = (("held_bytes", float(held)), ("hot_bytes", float(measured.hot_bytes)))
    return Advice(AdviceKind.LEAK, values)


def jitter(measured: Measured) -> Advice | None:
    """Tell that some replies come much slower than most, token for token."""
    times = [
        1000.0 / turn.timing.decode_tokens_per_second for turn in measured.turns if _timed(turn)
    ]
    if len(times) < _MIN_TIMED_TURNS:
        return None
    usual, slow = median(times), quantiles(times, n=10)[-1]
    if slow < _JITTER_FACTOR * usual:
        return None
    return Advice(AdviceKind.JITTER, (("slow_ms", slow), ("usual_ms", usual)), "num_threads")


def _timed(turn: ReplyStats) -> bool:
    """Tell whether a reply's speed says something: it was long enough, and grew mostly alone."""
    is_long = turn.usage.completion_tokens >= _MIN_REPLY_TOKENS
    is_alone = turn.timing.mean_batch_size < _MOST_SHARING
    return is_long and is_alone and turn.timing.decode_tokens_per_second > 0.0


def _cause(turn: ReplyStats) -> MissCause | None:
    return None if turn.miss_reason is None else turn.miss_reason.cause


def _setting_for(turns: Sequence[ReplyStats]) -> str:
    """Return the setting against the cause that cost most tokens; "" where none helps."""
    costs: Counter[MissCause] = Counter()
    for turn in turns:
        cause = _cause(turn)
        if cause is not None:
            costs[cause] += turn.usage.recomputed_tokens
    return _SETTING_FOR.get(costs.most_common(1)[0][0], "") if costs else "cold_budget_bytes"
