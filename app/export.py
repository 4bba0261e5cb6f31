"""Conversations as files for people (Markdown) and for programs (JSON, every branch).

Version 2 of the JSON holds which messages are pinned and what replies left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.conversation import Conversation, Message, Role
from app.errors import ExportError

FORMAT = "reprise-conversations"
VERSION = 2

_HEADINGS = {Role.USER: "You", Role.ASSISTANT: "Model", Role.SYSTEM: "System"}


def to_markdown(
    conversation: Conversation, path: Sequence[Message], messages: Sequence[Message] = ()
) -> str:
    """Return the branch on screen as Markdown, other versions of each message below it.

    path: the branch, first message first. messages: all branches, for the other versions.
    """
    lines = [f"# {conversation.title or 'Untitled'}", ""]
    if conversation.system_prompt:
        lines += ["> " + line for line in conversation.system_prompt.splitlines()] + [""]
    for message in path:
        lines += _section(message, _HEADINGS[message.role])
        others = [
            other
            for other in messages
            if other.parent_id == message.parent_id and other.id != message.id
        ]
        for other in others:
            heading = f"{_HEADINGS[other.role]} (version {other.version} of {other.num_versions})"
            lines += _folded(other, heading)
    return "\n".join(lines).rstrip() + "\n"


def to_json(conversations: Sequence[tuple[Conversation, Sequence[Message]]]) -> str:
    """Return conversations with all their branches as JSON; app/importers.py reads it back.

    conversations: pairs of a conversation and all its messages, parents first.
    """
    document = {
        "format": FORMAT,
        "version": VERSION,
        "conversations": [
            conversation_document(item) | {"messages": [message_document(one) for one in messages]}
            for item, messages in conversations
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def write_text(path: Path, text: str) -> None:
    """Write a file in whole or not at all. Raises: ExportError."""
    temporary = path.with_name(f"{path.name}.new")
    try:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ExportError(
            f"{path.name} cannot be written: {error.strerror}.", detail=str(error)
        ) from error


def _section(message: Message, heading: str) -> list[str]:
    lines = [f"## {heading}", ""]
    if message.reasoning:
        lines += _details("Reasoning", message.reasoning)
    return [*lines, message.content.rstrip(), ""]


def _folded(message: Message, heading: str) -> list[str]:
    return _details(heading, message.content)


def _details(summary: str, text: str) -> list[str]:
    return ["<details>", f"<summary>{summary}</summary>", "", text.rstrip(), "", "</details>", ""]


def conversation_document(conversation: Conversation) -> dict[str, Any]:
    """Return a conversation as JSON values, without its messages."""
    sampling = conversation.sampling
    return {
        "id": conversation.id,
        "title": conversation.title,
        "created_at": conversation.created_at.isoformat(),
        "updated_at": conversation.updated_at.isoformat(),
        "model": conversation.model,
        "system_prompt": conversation.system_prompt,
        "sampling": None if sampling is None else asdict(sampling),
        "folder": conversation.folder,
        "leaf_id": conversation.leaf_id,
    }


def message_document(message: Message) -> dict[str, Any]:
    """Return a message as JSON values."""
    left_out = message.left_out
    return {
        "id": message.id,
        "parent_id": message.parent_id,
        "role": str(message.role),
        "content": message.content,
        "reasoning": message.reasoning,
        "status": str(message.status),
        "created_at": message.created_at.isoformat(),
        "is_pinned": message.is_pinned,
        "left_out": None if left_out is None else asdict(left_out),
    }
