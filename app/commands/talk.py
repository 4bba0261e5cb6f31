"""``reprise chat``: a conversation in the terminal."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from app.commands.ask import show_answer
from app.commands.full_context import ask_in_terminal, say_left_out, wished_policy
from app.commands.session import TerminalSession, terminal_session
from app.conversation import Message, MessageStatus
from app.events import ReplyFinished
from app.prompting import ReplyOptions

HELP = "/new starts over, /quit ends, Ctrl+C stops a reply."


def talk(arguments: Namespace) -> int:
    """Talk until the input ends; replies stream, Ctrl+C stops one.

    Raises: CommandError, DatabaseError kinds.
    """
    with terminal_session(lambda text: print(text, file=sys.stderr)) as session:
        model = session.load(Path(arguments.model) if arguments.model else None)
        print(f"{model.name}, {model.quantisation}, {model.compute}. {HELP}")
        conversation_id = _opened(session, arguments)
        options = ReplyOptions(overflow=wished_policy(arguments.overflow))
        while (text := _read()) is not None:
            if text == "/quit":
                break
            if text == "/new":
                conversation_id = _new(session, arguments.system)
            elif text:
                _turn(session, conversation_id, text, options)
    return 0


def _turn(session: TerminalSession, conversation_id: str, text: str, options: ReplyOptions) -> None:
    _, reply = session.services.chat.send(conversation_id, text, options=options)
    finished = show_answer(session, reply.id, is_quiet=False)
    if finished.message.status is MessageStatus.ASKING:
        answered = _decide(session, finished.message)
        if answered is None:
            return
        finished = answered
    say_left_out(finished.message)
    if finished.error is not None:
        print(finished.error.message, file=sys.stderr)
    else:
        print(_cost(finished), file=sys.stderr)


def _decide(session: TerminalSession, reply: Message) -> ReplyFinished | None:
    """Ask what to leave out and answer; None when the message was taken back."""
    assert reply.question is not None
    policy = ask_in_terminal(reply.question)
    if policy is None:
        session.services.chat.full_context.cancel(reply.id)
        return None
    session.services.chat.full_context.choose(reply.id, policy)
    return show_answer(session, reply.id, is_quiet=False)


def _cost(finished: ReplyFinished) -> str:
    stats = finished.message.stats
    assert stats is not None, "a reply that did not fail has stats"
    usage, timing = stats.usage, stats.timing
    return (
        f"[{timing.decode_tokens_per_second:.0f} tokens/s, "
        f"first token {timing.first_token_ms / 1000:.1f} s, "
        f"reused {usage.reused.total:,}, read {usage.recomputed_tokens:,}]"
    )


def _opened(session: TerminalSession, arguments: Namespace) -> str:
    if not arguments.conversation:
        return _new(session, arguments.system)
    conversation_id = str(arguments.conversation)
    session.services.chat.open(conversation_id)
    return conversation_id


def _new(session: TerminalSession, system: str | None) -> str:
    chat = session.services.chat
    conversation_id = chat.new_conversation(system_prompt=system or "").id
    chat.open(conversation_id)
    return conversation_id


def _read() -> str | None:
    try:
        return input("> ").strip()
    except (EOFError, KeyboardInterrupt):
        print()
        return None
