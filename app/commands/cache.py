"""``reprise cache``: what is stored of the conversations; to clear, shrink, check or share it.

No model is loaded by these commands, so what they show lies on disk: the cold tier.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from app.cache_use import StoredConversation, stored_conversations
from app.commands import shared
from app.configuring import open_kv_store
from app.paths import app_paths
from app.settings_file import SettingsStore
from app.store.chat_store import ChatStore
from app.store.kv_store import KVStore

_FLUSH_S = 600.0

Numbers = dict[str, int]


def cache(arguments: Namespace) -> int:
    """Show or change what is stored; 1 when verifying found damage.

    Raises: StoreError, DatabaseError kinds, also when another running Reprise keeps the states.
    """
    with _open_store() as kv:
        if arguments.action is None:
            return _show(kv, is_json=arguments.json)
        numbers = _ACTIONS[arguments.action](kv)
    if arguments.json:
        print(json.dumps(numbers))
    else:
        print(_sentence(arguments.action, numbers))
    return int(bool(numbers.get("damaged_blocks")))


@contextmanager
def _open_store() -> Iterator[KVStore]:
    paths = app_paths()
    paths.create()
    kv = open_kv_store(SettingsStore(paths.settings).value, paths)
    try:
        kv.flush(_FLUSH_S)  # tidying up at the start changes the numbers
        yield kv
    finally:
        kv.close(_FLUSH_S)


def _show(kv: KVStore, *, is_json: bool) -> int:
    there = shared.report(kv)
    chats = ChatStore(app_paths().chats)
    try:
        rows = stored_conversations(kv, chats)
    finally:
        chats.close()
    if is_json:
        print(json.dumps({**_as_json(kv, rows), "shared": asdict(there)}, ensure_ascii=False))
    else:
        print(_as_text(kv, rows, there))
    return 0


def _as_json(kv: KVStore, rows: list[StoredConversation]) -> dict[str, Any]:
    return {
        "tiers": {"cold": {"used_bytes": kv.used_bytes(), "budget_bytes": kv.budget_bytes()}},
        "is_keeping": kv.is_keeping,
        "conversations": [
            {
                "conversation": row.conversation_id,
                "title": row.title,
                "model": row.model,
                "tokens": row.num_tokens,
                "branches": row.num_branches,
                "last_use": row.last_use.isoformat(),
                "cold": {
                    "blocks": row.num_blocks,
                    "own_bytes": row.own_bytes,
                    "shared_bytes": row.shared_bytes,
                },
            }
            for row in rows
        ],
    }


def _as_text(kv: KVStore, rows: list[StoredConversation], there: shared.SharedReport) -> str:
    lines = [f"cold  {_mb(kv.used_bytes())} of {_mb(kv.budget_bytes())}"]
    if there.address:
        lines.append(f"shared  {there}")
    if not kv.is_keeping:
        lines.append("Conversations are not kept ready: nothing more is stored.")
    if rows:
        lines += ["", f"{'own':>12}{'shared':>12}{'tokens':>9}  conversation"]
    for row in rows:
        title = "(deleted)" if row.title is None else row.title or "(untitled)"
        sizes = f"{_mb(row.own_bytes):>12}{_mb(row.shared_bytes):>12}{row.num_tokens:>9,}"
        lines.append(f"{sizes}  {row.conversation_id}  {title}")
    return "\n".join(lines)


def _clear(kv: KVStore) -> Numbers:
    before = kv.used_bytes()
    freed = kv.clear()
    return {"before_bytes": before, "after_bytes": before - freed}


def _compact(kv: KVStore) -> Numbers:
    return asdict(kv.compact())


def _verify(kv: KVStore) -> Numbers:
    before = kv.used_bytes()
    verified = kv.verify()
    kv.flush(_FLUSH_S)
    return {
        "before_bytes": before,
        "after_bytes": kv.used_bytes(),
        "blocks": verified.num_blocks,
        "payload_bytes": verified.num_bytes,
        "damaged_blocks": verified.num_damaged,
    }


_ACTIONS: dict[str, Callable[[KVStore], Numbers]] = {
    "clear": _clear,
    "compact": _compact,
    "verify": _verify,
    **shared.ACTIONS,
}


def _sentence(action: str, numbers: Numbers) -> str:
    if action == "replicate":
        return f"Everything is sent; {numbers['conversations']:,} conversations are there."
    if action == "fetch":
        return f"{numbers['fetched']:,} conversations fetched."
    sizes = f"{_mb(numbers['before_bytes'])} before, {_mb(numbers['after_bytes'])} after"
    if action == "clear":
        return sizes
    if action == "compact":
        before, after = numbers["before_blocks"], numbers["after_blocks"]
        return f"{sizes}; {before:,} blocks before, {after:,} after"
    blocks, damaged = numbers["blocks"], numbers["damaged_blocks"]
    found = f"{damaged:,} damaged and dropped" if damaged else "all sound"
    return f"{blocks:,} blocks, {found}; {sizes}"


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.1f} MB"
