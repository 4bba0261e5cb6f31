"""``reprise ask``: one question, one answer, and what it cost."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from app.commands.full_context import refused, say_left_out, wished_policy
from app.commands.session import TerminalSession, raise_for, terminal_session
from app.conversation import MessageStatus
from app.events import ModelInfo, ReplyDelta, ReplyFinished
from app.prompting import ReplyOptions
from app.store.chat_store import ChatStore
from engine.config import SamplingParams
from engine.events import Channel, MissReason


def ask(arguments: Namespace) -> int:
    """Ask one question; the answer streams to standard output, or comes as one JSON object.

    Raises: CommandError, DatabaseError kinds.
    """
    with terminal_session(_warn) as session:
        _wish(session, arguments.offload_share)
        conversation_id = _conversation(session.services.chats, arguments)
        session.services.chat.open(conversation_id)  # whoever asks here reads the answer here
        model = session.load(Path(arguments.model) if arguments.model else None)
        options = _options(arguments, session.services.settings.value.sampling)
        if arguments.n > 1:
            return _ask_for_several(session, conversation_id, arguments, options, model)
        _, reply = session.services.chat.send(conversation_id, arguments.text, options=options)
        finished = show_answer(session, reply.id, is_quiet=arguments.json)
        raise_for(finished.error)
        _refuse_full(session, finished)
        say_left_out(finished.message)
        if arguments.json:
            print(json.dumps(_as_json(finished, model), ensure_ascii=False))
        return 0


def _wish(session: TerminalSession, offload_share: float | str | None) -> None:
    """Want another share for this run than the settings say; None is theirs."""
    if offload_share is None:
        return
    share = None if isinstance(offload_share, str) else offload_share
    session.services.wishes = partial(replace, offload_share=share)


def _ask_for_several(
    session: TerminalSession,
    conversation_id: str,
    arguments: Namespace,
    options: ReplyOptions,
    model: ModelInfo,
) -> int:
    """Ask once, show every answer when all are there. Raises: CommandError."""
    chat = session.services.chat
    _, replies = chat.send_for_versions(
        conversation_id, arguments.text, arguments.n, options=options
    )
    ids = [reply.id for reply in replies]
    ends = session.finished_replies(ids, on_interrupt=lambda: chat.stop(conversation_id))
    for finished in ends:
        raise_for(finished.error)
        _refuse_full(session, finished)
    say_left_out(ends[0].message)
    if arguments.json:
        completions = [_as_json(finished, model) for finished in ends]
        answer = {"conversation": conversation_id, "completions": completions}
        print(json.dumps(answer, ensure_ascii=False))
        return 0
    for number, finished in enumerate(ends, 1):
        print(f"[{number}] {finished.message.content}\n")
    return 0


def _refuse_full(session: TerminalSession, finished: ReplyFinished) -> None:
    """Take back a message that does not fit. Raises: CommandError, which tells the choices."""
    question = finished.message.question
    if finished.message.status is MessageStatus.ASKING and question is not None:
        session.services.chat.full_context.cancel(finished.message.id)
        raise refused(question)


def _conversation(store: ChatStore, arguments: Namespace) -> str:
    if arguments.conversation:
        found = store.conversation(arguments.conversation)
        if arguments.system is not None:
            store.update_conversation(found.id, system_prompt=arguments.system)
        return found.id
    return store.create_conversation(system_prompt=arguments.system or "").id


def _options(arguments: Namespace, preset: SamplingParams) -> ReplyOptions:
    sampling = preset
    if arguments.temperature is not None:
        sampling = replace(sampling, temperature=arguments.temperature)
    if arguments.seed is not None:
        sampling = replace(sampling, seed=arguments.seed)
    return ReplyOptions(sampling, arguments.max_tokens, wished_policy(arguments.overflow))


def show_answer(session: TerminalSession, reply_id: str, *, is_quiet: bool) -> ReplyFinished:
    """Print a reply as it grows, its reasoning to standard error; Ctrl+C stops it."""
    try:
        for event in session.reply_events(reply_id):
            if isinstance(event, ReplyFinished):
                if not is_quiet:
                    print()
                return event
            if isinstance(event, ReplyDelta) and not is_quiet:
                _show(event)
    except KeyboardInterrupt:
        session.services.chat.stop(session.services.chats.message(reply_id).conversation_id)
        return show_answer(session, reply_id, is_quiet=is_quiet)
    raise AssertionError("a reply always ends in ReplyFinished")


def _show(event: ReplyDelta) -> None:
    stream = sys.stdout if event.channel is Channel.CONTENT else sys.stderr
    print(event.text, end="", flush=True, file=stream)


def _as_json(finished: ReplyFinished, model: ModelInfo) -> dict[str, Any]:
    message = finished.message
    stats = message.stats
    assert stats is not None, "a reply that did not fail has stats"
    usage, timing = stats.usage, stats.timing
    return {
        "conversation": message.conversation_id,
        "text": message.content,
        "token_ids": list(finished.token_ids),
        "finish_reason": _FINISH_REASONS[message.status.value],
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "reused_tokens": usage.reused.total,
            "reused_from": asdict(usage.reused),
            "recomputed_tokens": usage.recomputed_tokens,
            "completion_tokens": usage.completion_tokens,
        },
        "timing": {"load_ms": model.load_ms, **asdict(timing)},
        "miss_reason": _miss(stats.miss_reason),
        "left_out": None if message.left_out is None else asdict(message.left_out),
    }


_FINISH_REASONS = {"complete": "stop", "length": "length", "stopped": "cancelled"}


def _miss(reason: MissReason | None) -> dict[str, Any] | None:
    return None if reason is None else asdict(reason)


def _warn(text: str) -> None:
    print(text, file=sys.stderr)
