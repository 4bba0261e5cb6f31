"""``reprise clone``: a copy of a conversation that keeps only a part of its memory."""

from __future__ import annotations

import json
import queue
import sys
from argparse import Namespace
from pathlib import Path

from app.cloning import CloneResult
from app.commands.session import raise_for, terminal_session


def clone(arguments: Namespace) -> int:
    """Copy a conversation and print what its copy keeps.

    Raises: CommandError, NotFoundError, DatabaseError kinds.
    """
    with terminal_session(lambda text: print(text, file=sys.stderr)) as session:
        services = session.services
        services.chats.conversation(arguments.conversation)
        session.load(Path(arguments.model) if arguments.model else None)
        decay = arguments.decay or services.settings.value.clone_decay
        results: queue.SimpleQueue[CloneResult] = queue.SimpleQueue()
        services.chat.clone(arguments.conversation, decay=decay, on_done=results.put)
        result = results.get()
        raise_for(result.error)
    if arguments.json:
        print(json.dumps(_as_json(result, decay)))
    else:
        kept = f"{result.num_places:,} of {result.num_tokens:,} tokens kept"
        print(f"{result.conversation_id}  {kept}")
    return 0


def _as_json(result: CloneResult, decay: float) -> dict[str, str | float]:
    return {
        "conversation": result.conversation_id,
        "decay": decay,
        "tokens": result.num_tokens,
        "kept": result.num_places,
    }
