"""What every conversation costs in the stored states, with its title: for lists and tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from app.store.chat_store import ChatStore
from app.store.kv_store import KVStore
from app.store.kv_usage import ConversationUse


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """One conversation's stored state for one model.

    title: None when the conversation is not in the list any more. model: fingerprint in hex.
    own_bytes: what freeing it gives back. shared_bytes: of blocks others name too.
    """

    conversation_id: str
    title: str | None
    model: str
    num_tokens: int
    num_branches: int
    num_blocks: int
    own_bytes: int
    shared_bytes: int
    last_use: datetime


def stored_conversations(kv: KVStore, chats: ChatStore) -> list[StoredConversation]:
    """Return what is stored of each conversation, biggest first. Takes a while: reads both files.

    Raises: StoreError, DatabaseError kinds.
    """
    titles = {row.id: row.title for row in chats.conversations(include_archived=True)}
    return [_row(use, titles.get(use.conversation_id)) for use in kv.usage()]


def _row(use: ConversationUse, title: str | None) -> StoredConversation:
    return StoredConversation(
        conversation_id=use.conversation_id,
        title=title,
        model=use.fingerprint.hex(),
        num_tokens=use.num_tokens,
        num_branches=use.num_branches,
        num_blocks=use.num_blocks,
        own_bytes=use.own_bytes,
        shared_bytes=use.shared_bytes,
        last_use=datetime.fromtimestamp(use.last_use / 1e6, UTC),
    )
