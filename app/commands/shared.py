"""``reprise cache replicate|fetch``, and what is said elsewhere of the store machines share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.commands.session import CommandError
from app.errors import SharedStoreError
from app.paths import app_paths
from app.settings_file import SettingsStore
from app.shared_texts import ChatTexts
from app.shared_url import masked
from app.store.chat_store import ChatStore
from app.store.kv_store import KVStore
from app.store.shared.store import SharedStore, look

_WAIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class SharedReport:
    """What is found at an address. problem: why nothing is; num_waiting: states not sent yet."""

    address: str
    num_conversations: int = 0
    num_waiting: int = 0
    problem: str = ""

    def __str__(self) -> str:
        if not self.address:
            return "off"
        if self.problem:
            return f"{self.address}: {self.problem}"
        return (
            f"{self.address}: {self.num_conversations} conversations, "
            f"{self.num_waiting} states of this machine to be sent"
        )


def report(kv: KVStore) -> SharedReport:
    """Look at the shared store of the settings. Takes seconds where nobody answers."""
    url = SettingsStore(app_paths().settings).value.shared_store_url
    if not url:
        return SharedReport("")
    try:
        server, num_conversations = look(url)
    except SharedStoreError as error:
        return SharedReport(masked(url), problem=str(error))
    num_waiting = len(kv.replicas.unreplicated(server))
    return SharedReport(masked(url), num_conversations, num_waiting)


def replicate(kv: KVStore) -> dict[str, int]:
    """Send everything that was not sent yet. Raises: CommandError where there is no server."""
    with _sharing(kv):
        return {"conversations": report(kv).num_conversations}


def fetch(kv: KVStore) -> dict[str, int]:
    """Bring every conversation here that is only there. Raises: CommandError."""
    with _sharing(kv) as shared:
        there = [one.id for one in shared.state.elsewhere]
        if there:
            shared.bring(there)
            _settle(shared)
        return {"fetched": len(there) - len(shared.state.elsewhere)}


@contextmanager
def _sharing(kv: KVStore) -> Iterator[SharedStore]:
    """Yield the shared store in step with this machine."""
    paths = app_paths()
    url = SettingsStore(paths.settings).value.shared_store_url
    if not url:
        raise CommandError(
            "There is no shared store: set shared_store_url.", detail=str(paths.settings)
        )
    if not kv.replicas.is_writable:
        raise CommandError("Another running Reprise keeps the stored states, and replicates them.")
    chats = ChatStore(paths.chats)
    shared = SharedStore(
        kv.replicas, ChatTexts(chats, _ignore), on_change=_ignore, on_arrived=_ignore
    )
    try:
        shared.set_url(url)
        _settle(shared)
        yield shared
    finally:
        shared.close(1.0)
        chats.close()


def _settle(shared: SharedStore) -> None:
    error = shared.wait_settled(_WAIT_S).error
    if error is not None:
        raise CommandError(str(error), detail=error.detail)


def _ignore(what: object) -> None:
    del what


ACTIONS: dict[str, Callable[[KVStore], dict[str, int]]] = {"replicate": replicate, "fetch": fetch}
