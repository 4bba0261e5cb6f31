"""What of this machine is kept in step with a shared store. Knows no server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.store.kv_replicas import KVReplicas
from app.store.shared.catalogue import SharedCatalogue
from app.store.shared.text import MergedText, OutgoingText, SharedText


class Texts(Protocol):
    """What is asked of the conversations themselves."""

    def ids(self) -> list[str]:
        """Return the conversations that are here."""
        ...

    def is_here(self, conversation_id: str) -> bool:
        """Tell whether a conversation is here, and not deleted."""
        ...

    def outgoing(self, conversation_id: str) -> OutgoingText | None:
        """Return a conversation's text as it is sent; None where nothing was said yet."""
        ...

    def merge(self, conversation_id: str, text: SharedText) -> MergedText:
        """Add what another machine wrote; the conversation is made where it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """What of this machine is kept in step.

    on_arrived: told whose states came from another machine.
    """

    replicas: KVReplicas
    texts: Texts
    catalogue: SharedCatalogue
    on_arrived: Callable[[str], None]
