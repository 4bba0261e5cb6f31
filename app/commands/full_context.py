"""What the terminal says when a conversation no longer fits, and how it lets one choose."""

from __future__ import annotations

import sys

from app.commands.session import CommandError
from app.conversation import ContextChoice, ContextQuestion, LeftOut, Message
from engine.config import Overflow
from engine.events import RollRefusal

_NAMES = {
    Overflow.DROP_OLDEST: "drop the oldest turns",
    Overflow.KEEP_ENDS: "keep the first turn and the newest ones",
    Overflow.ROLLING_WINDOW: "roll the window on",
}
_REFUSALS = {
    RollRefusal.RECURRENT: "this model's state cannot be moved",
    RollRefusal.THINNED: "this copy was thinned out",
    RollRefusal.NO_BORDER: "the chat template leaves no place to cut at",
    RollRefusal.WINDOW_GONE: "a part of its state is no longer kept",
    RollRefusal.NO_ROOM: "there is no room for the moved state",
}


def wished_policy(text: str | None) -> Overflow | None:
    """Return the policy named on the command line; None leaves it to the settings."""
    return None if text is None else Overflow(text)


def say_left_out(message: Message) -> None:
    """Say on standard error what was left out for this reply; nothing where nothing was."""
    out = message.left_out
    if out is not None and out.num_tokens:
        print(f"[{_left_out_words(out)}]", file=sys.stderr)


def ask_in_terminal(question: ContextQuestion) -> Overflow | None:
    """Let the user choose; None takes the message back."""
    offered = [choice for choice in question.choices if not choice.refusal]
    print(_need_words(question))
    for number, choice in enumerate(offered, start=1):
        print(f"  {number}  {choice_words(choice)}")
    print("  Enter alone takes the message back")
    try:
        answer = input("? ").strip()
    except (EOFError, KeyboardInterrupt):
        answer = ""
    if answer.isdigit() and 1 <= int(answer) <= len(offered):
        return Overflow(offered[int(answer) - 1].policy)
    return None


def refused(question: ContextQuestion) -> CommandError:
    """Return the error of a command that cannot ask."""
    lines = [f"  --overflow {one.policy}: {choice_words(one)}" for one in question.choices]
    return CommandError(f"{_need_words(question)} Choose one:", detail="\n".join(lines))


def choice_words(choice: ContextChoice) -> str:
    """Return one line: what is done, what is lost, what is read again."""
    name = _NAMES[Overflow(choice.policy)]
    if choice.refusal:
        return f"{name} (not possible: {_REFUSALS[RollRefusal(choice.refusal)]})"
    read = f"reads {choice.reread_tokens:,} tokens again, about {choice.seconds:.1f} s"
    if choice.policy == Overflow.ROLLING_WINDOW and choice.reread_tokens < 32:
        read = "reads nothing again, approximate"
    return f"{name}: {choice.num_messages} messages, {choice.num_tokens:,} tokens; {read}"


def _need_words(question: ContextQuestion) -> str:
    return (
        f"This conversation needs {question.prompt_tokens:,} tokens; "
        f"{question.limit_tokens:,} of {question.context_length:,} leave room for a reply."
    )


def _left_out_words(out: LeftOut) -> str:
    done = _NAMES[Overflow(out.policy)]
    words = (
        f"{len(out.ids)} messages are no longer in the model's context, "
        f"{out.num_tokens:,} tokens left out now: {done}"
    )
    if out.refusal:
        words += f"; read again, because {_REFUSALS[RollRefusal(out.refusal)]}"
    return words
