"""What a shared store holds, as last heard: answers at once, so that nobody waits for a network."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.store.shared.reads import SharedConversation, SharedManifest


class SharedCatalogue:
    """Hashes of blocks, manifests and conversations. Used from any thread.

    A hash it names may be gone by now; one it does not name may have come. Either costs little.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hashes: set[bytes] = set()
        self._manifests: dict[str, list[SharedManifest]] = {}
        self._conversations: dict[str, SharedConversation] = {}

    def clear(self) -> None:
        """Forget everything: there is no connection."""
        self.replace((), ())

    def replace(
        self, manifests: Iterable[SharedManifest], conversations: Iterable[SharedConversation]
    ) -> None:
        """Take in everything that is there."""
        by_conversation: dict[str, list[SharedManifest]] = {}
        hashes: set[bytes] = set()
        for manifest in manifests:
            by_conversation.setdefault(manifest.conversation_id, []).append(manifest)
            hashes.update(manifest.hashes)
        with self._lock:
            self._hashes = hashes
            self._manifests = by_conversation
            self._conversations = {one.id: one for one in conversations}

    def update(
        self,
        conversation_id: str,
        manifests: Sequence[SharedManifest],
        conversations: Sequence[SharedConversation],
    ) -> None:
        """Take in what is there of one conversation; nothing of it where it was forgotten."""
        with self._lock:
            self._manifests[conversation_id] = list(manifests)
            self._hashes.update(key for manifest in manifests for key in manifest.hashes)
            self._conversations.pop(conversation_id, None)
            self._conversations.update({one.id: one for one in conversations})

    def among(self, hashes: Iterable[bytes]) -> frozenset[bytes]:
        """Return those of the hashes that are there."""
        with self._lock:
            return frozenset(self._hashes.intersection(hashes))

    def drop(self, hashes: Iterable[bytes]) -> None:
        """Note that these are not there, or of no use."""
        with self._lock:
            self._hashes.difference_update(hashes)

    def manifests(self, conversation_id: str) -> list[SharedManifest]:
        """Return the branches of a conversation."""
        with self._lock:
            return list(self._manifests.get(conversation_id, ()))

    def conversation(self, conversation_id: str) -> SharedConversation | None:
        """Return a conversation whose text is there."""
        with self._lock:
            return self._conversations.get(conversation_id)

    def conversations(self) -> list[SharedConversation]:
        """Return all conversations whose text is there, newest first."""
        with self._lock:
            found = list(self._conversations.values())
        return sorted(found, key=lambda one: one.updated_at, reverse=True)
