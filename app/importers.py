"""Reads conversations other programs exported, and our own JSON. Knows no store.

Formats: ChatGPT's conversations.json, a dump of SimpleChat's localStorage, app/export.py's JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.conversation import LeftOut, MessageStatus, Role
from app.errors import ImportFormatError
from app.export import FORMAT, VERSION
from app.transcript import Transcript, TranscriptMessage, in_order

_SIMPLECHAT_PREFIX = "SimpleChat-"
_SIMPLECHAT_NAMES = ("", "Default", "Other")
_MAX_BYTES = 2 << 30


def read_file(path: Path) -> list[Transcript]:
    """Return the conversations in a file, whichever of the formats it is in.

    Raises: ImportFormatError.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ImportFormatError("This file is too large to be imported.", detail=str(path))
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ImportFormatError(f"{path.name} cannot be read.", detail=str(error)) from error
    return read_text(text)


def read_text(text: str) -> list[Transcript]:
    """Return the conversations in a JSON text. Raises: ImportFormatError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImportFormatError("This is not a JSON file.", detail=str(error)) from error
    reader = _reader(data)
    if reader is None:
        raise ImportFormatError(
            "This file holds no conversations in a format Reprise knows: "
            "ChatGPT export, SimpleChat dump, or Reprise's own JSON."
        )
    try:
        found = list(reader(data))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ImportFormatError(
            "The conversations in this file are damaged.", detail=repr(error)
        ) from error
    return [transcript for transcript in found if transcript.messages]


def _reader(data: Any) -> Callable[[Any], Iterator[Transcript]] | None:
    if isinstance(data, dict) and data.get("format") == FORMAT:
        return _own
    if isinstance(data, list) and any(
        isinstance(item, dict) and "mapping" in item for item in data
    ):
        return _chatgpt
    if isinstance(data, dict) and "mapping" in data:
        return lambda single: _chatgpt([single])
    if isinstance(data, dict) and any(_simplechat_messages(value) for value in data.values()):
        return _simplechat
    return None


def _own(data: Mapping[str, Any]) -> Iterator[Transcript]:
    if data.get("version", 1) > VERSION:
        raise ImportFormatError("This file was written by a newer version of Reprise.")
    for item in data["conversations"]:
        messages = (
            TranscriptMessage(
                id=message["id"],
                parent_id=message["parent_id"],
                role=Role(message["role"]),
                content=message["content"],
                created_at=_iso(message.get("created_at")),
                reasoning=message.get("reasoning", ""),
                status=_settled(message.get("status", "complete")),
                is_pinned=message.get("is_pinned") is True,
                left_out=_left_out(message.get("left_out")),
            )
            for message in item["messages"]
        )
        yield Transcript(
            title=item["title"],
            messages=in_order(messages),
            leaf_id=item.get("leaf_id"),
            system_prompt=item.get("system_prompt", ""),
            created_at=_iso(item.get("created_at")),
            model=item.get("model", ""),
            folder=item.get("folder", ""),
        )


def _chatgpt(data: list[Any]) -> Iterator[Transcript]:
    for item in data:
        mapping = item.get("mapping") if isinstance(item, dict) else None
        if not isinstance(mapping, dict):
            continue
        kept = {key: message for key, node in mapping.items() if (message := _visible(node))}
        messages = in_order(
            TranscriptMessage(
                id=key,
                parent_id=_nearest(mapping, kept, mapping[key].get("parent")),
                role=Role(message["author"]["role"]),
                content=_chatgpt_text(message),
                created_at=_epoch(message.get("create_time")),
            )
            for key, message in kept.items()
        )
        yield Transcript(
            title=item.get("title") or "",
            messages=messages,
            leaf_id=_nearest(mapping, kept, item.get("current_node")),
            system_prompt=_chatgpt_system(mapping),
            created_at=_epoch(item.get("create_time")),
        )


def _visible(node: Any) -> dict[str, Any] | None:
    """Return a node's message if a person would have seen it: no tools, no hidden preambles."""
    message = node.get("message") if isinstance(node, dict) else None
    if not isinstance(message, dict):
        return None
    is_spoken = (message.get("author") or {}).get("role") in ("user", "assistant")
    is_hidden = (message.get("metadata") or {}).get("is_visually_hidden_from_conversation")
    is_for_all = message.get("recipient", "all") == "all"
    if not is_spoken or is_hidden or not is_for_all or not _chatgpt_text(message).strip():
        return None
    return message


def _chatgpt_text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or {}
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n\n".join(part for part in parts if isinstance(part, str) and part)
    text = content.get("text")
    return text if isinstance(text, str) and content.get("content_type") != "thoughts" else ""


def _chatgpt_system(mapping: Mapping[str, Any]) -> str:
    for node in mapping.values():
        message = node.get("message") if isinstance(node, dict) else None
        if isinstance(message, dict) and (message.get("author") or {}).get("role") == "system":
            return _chatgpt_text(message).strip()
    return ""


def _nearest(mapping: Mapping[str, Any], kept: Mapping[str, Any], key: Any) -> str | None:
    """Return the closest kept message at or above a node."""
    seen: set[str] = set()
    while isinstance(key, str) and key in mapping and key not in seen:
        if key in kept:
            return key
        seen.add(key)
        key = mapping[key].get("parent")
    return None


def _simplechat(data: Mapping[str, Any]) -> Iterator[Transcript]:
    for key, value in data.items():
        spoken = _simplechat_messages(value)
        if not spoken:
            continue
        system = [text for role, text in spoken if role is Role.SYSTEM]
        turns = [(role, text) for role, text in spoken if role is not Role.SYSTEM]
        messages = tuple(
            TranscriptMessage(str(at), str(at - 1) if at else None, role, text)
            for at, (role, text) in enumerate(turns)
        )
        yield Transcript(
            title=_simplechat_title(key),
            messages=messages,
            leaf_id=messages[-1].id if messages else None,
            system_prompt="\n\n".join(system),
        )


def _simplechat_title(key: str) -> str:
    # The names SimpleChat starts with say nothing; an empty title is made from the first message.
    name = key.removeprefix(_SIMPLECHAT_PREFIX)
    return "" if name in _SIMPLECHAT_NAMES else name


def _simplechat_messages(value: Any) -> list[tuple[Role, str]]:
    """Return (role, text) of one localStorage value; empty when it holds no chat."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    messages = value.get("xchat") if isinstance(value, dict) else value
    if not isinstance(messages, list):
        return []
    found = (_simplechat_message(item) for item in messages)
    return [message for message in found if message is not None]


def _simplechat_message(item: Any) -> tuple[Role, str] | None:
    if not isinstance(item, dict):
        return None
    # Newer versions wrap what goes to the server in "ns".
    wrapped = item.get("ns")
    spoken = wrapped if isinstance(wrapped, dict) else item
    role, text = spoken.get("role"), spoken.get("content")
    if role not in tuple(Role) or not isinstance(text, str):
        return None
    return Role(role), text


def _settled(status: str) -> MessageStatus:
    found = MessageStatus(status)
    return MessageStatus.STOPPED if found is MessageStatus.STREAMING else found


def _left_out(data: Any) -> LeftOut | None:
    if not isinstance(data, Mapping):
        return None
    return LeftOut(
        policy=str(data["policy"]),
        ids=tuple(map(str, data["ids"])),
        num_tokens=int(data["num_tokens"]),
        context_length=int(data["context_length"]),
        refusal=str(data["refusal"]),
    )


def _iso(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _epoch(seconds: Any) -> datetime | None:
    if not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, OSError, ValueError):
        return None
