"""``reprise conversations``, ``reprise models`` and ``reprise inspect``: what there is."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.configuring import model_folders
from app.conversation import Conversation
from app.model_library import ModelEntry, ModelLibrary
from app.paths import app_paths
from app.settings_file import SettingsStore
from app.store.chat_store import ChatStore
from engine.gguf_file import GGUFFile, TensorInfo


def conversations(arguments: Namespace) -> int:
    """List the conversations, newest first. Raises: DatabaseError kinds."""
    store = ChatStore(app_paths().chats)
    try:
        rows = store.conversations(include_archived=True)
    finally:
        store.close()
    if arguments.json:
        print(json.dumps([_conversation_json(row) for row in rows], ensure_ascii=False))
        return 0
    for row in rows:
        print(f"{row.id}  {row.updated_at:%Y-%m-%d %H:%M}  {row.title or '(untitled)'}")
    return 0


def models(arguments: Namespace) -> int:
    """List the models of the library, damaged ones with their error."""
    paths = app_paths()
    folders = model_folders(SettingsStore(paths.settings).value, paths)
    entries = ModelLibrary(folders, paths.model_headers).scan()
    if arguments.json:
        print(json.dumps([asdict(entry) for entry in entries], ensure_ascii=False))
        return 0
    for entry in entries:
        print(_entry_line(entry))
    if not entries:
        print(f"No models in {paths.models}")
    return 0


def inspect(arguments: Namespace) -> int:
    """Show a model file's metadata and tensors. Raises: ModelFileError."""
    file = GGUFFile.open(Path(arguments.file))
    try:
        for key, value in file.metadata.items():
            print(f"{key} = {_short(value)}")
        for info in file.tensors.values():
            print(_tensor_line(info))
    finally:
        file.close()
    return 0


def _conversation_json(row: Conversation) -> dict[str, Any]:
    return {
        "id": row.id,
        "title": row.title,
        "created_at": row.created_at.isoformat(),
        "updated_at": row.updated_at.isoformat(),
        "model": row.model,
        "folder": row.folder,
        "tokens": row.num_tokens,
        "is_pinned": row.is_pinned,
        "is_archived": row.is_archived,
    }


def _entry_line(entry: ModelEntry) -> str:
    if entry.error:
        return f"{entry.path}  cannot be used: {entry.error}"
    size = entry.size_bytes / 1e6
    return f"{entry.path}  {entry.architecture} {entry.quantisation}  {size:,.0f} MB"


def _tensor_line(info: TensorInfo) -> str:
    shape = " x ".join(str(size) for size in info.shape)
    return f"{info.name}  {info.type.name}  {shape}  {info.num_bytes:,} bytes"


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"[{len(value)} values] {value[:4]}"
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}..."
