"""What is said about a full context: what can be done, what it costs, why something cannot be."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.conversation import ContextChoice, ContextQuestion, LeftOut
from ui.chat.words import count, duration

translate = QCoreApplication.translate

DROP_OLDEST, KEEP_ENDS, ROLLING = "drop_oldest", "keep_ends", "rolling_window"
# The closing of a message, which is nothing to speak of.
_FEW_TOKENS = 32


def policy_name(policy: str) -> str:
    """Return what a policy is called."""
    return {
        DROP_OLDEST: translate("context", "Drop the oldest turns"),
        KEEP_ENDS: translate("context", "Keep start and end"),
        ROLLING: translate("context", "Rolling window"),
    }.get(policy, translate("context", "Ask me"))


def refusal_words(refusal: str) -> str:
    """Return why a window cannot be rolled on; "" where nothing was refused."""
    if not refusal:
        return ""
    return {
        "recurrent": translate("context", "This model's memory cannot be moved."),
        "thinned": translate("context", "This copy was thinned out."),
        "no_border": translate("context", "The chat template leaves no place to cut at."),
        "window_gone": translate("context", "A part of its memory is no longer kept."),
        "no_room": translate("context", "There is no room in memory for the moved part."),
    }.get(refusal, refusal)


def question_words(question: ContextQuestion) -> str:
    """Return what does not fit."""
    words = translate(
        "context", "It needs {0} tokens. Of the {1} that the model sees, {2} leave room to answer."
    )
    return words.format(
        count(question.prompt_tokens), count(question.context_length), count(question.limit_tokens)
    )


def choice_words(choice: ContextChoice, messages: str) -> str:
    """Return what a choice costs, or why it cannot be had. messages: their number in words."""
    if choice.refusal:
        return refusal_words(choice.refusal)
    words = translate("context", "{0} with {1} tokens left out")
    words = words.format(messages, count(choice.num_tokens))
    if choice.reread_tokens >= _FEW_TOKENS:
        read = translate("context", "{0} tokens are read again, about {1}")
        read = read.format(count(choice.reread_tokens), duration(choice.seconds))
    else:
        read = translate("context", "nothing is read again")
    return " · ".join((words, read, *_what_is_special(choice.policy)))


def marker_tip(left_out: LeftOut | None) -> str:
    """Return how it came to that, and how to keep a message."""
    keep = translate("context", "A message that is pinned keeps its turn in the context.")
    if left_out is None:
        return keep
    lines = [policy_name(left_out.policy), refusal_words(left_out.refusal), keep]
    return "\n".join(filter(None, lines))


def _what_is_special(policy: str) -> tuple[str, ...]:
    if policy == KEEP_ENDS:
        return (translate("context", "the first turn stays"),)
    return (translate("context", "approximate"),) if policy == ROLLING else ()
