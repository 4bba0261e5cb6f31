"""One connection to a shared store, from its beginning to its end: sends, listens, takes over.

Runs on the replicating thread. Imports psycopg; whoever may have to do without it imports this
module late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from app.errors import AppError, SharedStoreError
from app.store.kv_replicas import Unreplicated
from app.store.shared.database import SharedDatabase, driver
from app.store.shared.errors import typed_errors
from app.store.shared.exchange import Exchange
from app.store.shared.home import Home
from app.store.shared.reads import list_conversations, list_manifests
from app.store.shared.sending import Sender
from app.store.shared.signals import Signals
from app.store.shared.tables import CHANNEL
from app.store.shared.writes import discard_blocks, sweep
from engine.errors import StoreError

log = logging.getLogger(__name__)

_IDLE_S = 30.0


class SharedSession:
    """Runs until it is stopped or the connection ends.

    on_progress: told how many manifests wait to be sent, and what to ask whether nothing is left to
    be done; asked at a moment at which nobody brings anything new.
    """

    def __init__(
        self,
        database: SharedDatabase,
        home: Home,
        signals: Signals,
        on_progress: Callable[[int, Callable[[], bool]], None],
    ) -> None:
        self._database = database
        self._home = home
        self._signals = signals
        self._on_progress = on_progress
        # What failed for a reason of its own is left alone until the next connection.
        self._given_up: set[int] = set()

    def run(self) -> None:
        """Make the tables, take in what is there, keep in step. Raises: SharedStoreError kinds."""
        server = self._database.make()
        exchange = Exchange(self._database, self._home, server)
        sender = Sender(
            self._database,
            self._home.replicas,
            server=server,
            is_stopped=lambda: self._signals.is_stopped,
        )
        with self._database.connect() as listening:
            driver(listening).execute(f"LISTEN {CHANNEL}")
            self._take_stock()
            while not self._signals.is_stopped:
                self._work(server, exchange, sender)
                self._listen(driver(listening))

    def _take_stock(self) -> None:
        """Learn what is there; every conversation of ours is to be looked at once."""
        with self._database.connect() as connection:
            self._home.catalogue.replace(list_manifests(connection), list_conversations(connection))
        if not self._home.replicas.is_writable:
            return
        with self._database.writing() as connection:
            sweep(connection)
        for conversation_id in self._home.texts.ids():
            self._signals.note(conversation_id)

    def _work(self, server: str, exchange: Exchange, sender: Sender) -> None:
        """Do whatever there is to be done, words before states."""
        if not self._home.replicas.is_writable:
            # Another process of this home keeps in step; here it is only read.
            while self._signals.take() is not None:
                pass
            self._on_progress(0, lambda: not self._signals.has_work())
            return
        self._drop_damaged()
        remotes = self._home.replicas.remotes(server)
        while (found := self._signals.take()) is not None and not self._signals.is_stopped:
            self._exchange(exchange, *found, remotes=remotes)
        self._send(sender)

    def _exchange(
        self,
        exchange: Exchange,
        conversation_id: str,
        is_wanted: bool,
        *,
        remotes: dict[tuple[bytes, str, str], int],
    ) -> None:
        try:
            exchange.text(conversation_id, is_wanted=is_wanted)
            exchange.states(conversation_id, remotes)
        except SharedStoreError:
            self._signals.note(conversation_id, is_wanted=is_wanted)
            raise
        except (AppError, StoreError) as error:
            log.warning("shared store, %s: %s %s", conversation_id, error, error.detail)

    def _send(self, sender: Sender) -> None:
        while not self._signals.is_stopped:
            num_wakes = self._signals.num_wakes
            waiting = self._to_send(sender)
            self._on_progress(len(waiting), partial(self._is_settled, len(waiting), num_wakes))
            if not waiting or self._signals.has_work():
                return
            try:
                sender.send(waiting[0])
            except StoreError as error:
                log.warning("shared store, not sent: %s %s", error, error.detail)
                self._given_up.add(waiting[0].manifest_id)

    def _is_settled(self, num_waiting: int, num_wakes: int) -> bool:
        # Who woke us after that look brought something that it does not know of.
        has_more = num_waiting > 0 or num_wakes != self._signals.num_wakes
        return not has_more and not self._signals.has_work()

    def _to_send(self, sender: Sender) -> list[Unreplicated]:
        """Return what waits, without what was deleted here: that must not go out again."""
        waiting = [one for one in sender.waiting() if one.manifest_id not in self._given_up]
        here = set(self._home.texts.ids()) if waiting else set()
        return [one for one in waiting if one.conversation_id in here]

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        if not self._signals.has_work():
            self._signals.wait(_IDLE_S, connection.fileno())
        with typed_errors():
            changed = {notice.payload for notice in connection.notifies(timeout=0)}
        for conversation_id in changed:
            self._learn(conversation_id)
            self._signals.note(conversation_id)

    def _learn(self, conversation_id: str) -> None:
        with self._database.connect() as connection:
            self._home.catalogue.update(
                conversation_id,
                list(list_manifests(connection, conversation_id)),
                list_conversations(connection, conversation_id),
            )

    def _drop_damaged(self) -> None:
        for fingerprint, hashes in self._signals.take_damaged():
            with self._database.writing() as connection:
                discard_blocks(connection, fingerprint, hashes)
