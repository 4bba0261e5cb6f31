"""Keeps one conversation in step with the shared store: its text both ways, manifests towards us.

Nothing is decided by clocks. A text is sent when it differs from what was last sent or taken over,
and taken over when its version on the server is another one than then.
"""

from __future__ import annotations

from app.store.kv_replicas import Key, TextNote
from app.store.shared.database import SharedDatabase
from app.store.shared.home import Home
from app.store.shared.reads import read_manifest, read_text
from app.store.shared.text import MergedText, OutgoingText
from app.store.shared.writes import forget, put_text


class Exchange:
    """One server and one home. Raises: SharedStoreError kinds, StoreError, AppError kinds."""

    def __init__(self, database: SharedDatabase, home: Home, server: str) -> None:
        self._database = database
        self._replicas = home.replicas
        self._texts = home.texts
        self._catalogue = home.catalogue
        self._on_arrived = home.on_arrived
        self._server = server

    def text(self, conversation_id: str, *, is_wanted: bool) -> None:
        """Exchange a conversation's text. is_wanted: bring it here where it is not."""
        note = self._replicas.text(conversation_id, self._server)
        known = self._catalogue.conversation(conversation_id)
        if self._texts.is_here(conversation_id):
            self._exchange(conversation_id, note, None if known is None else known.version)
        elif is_wanted and known is not None:
            self._bring(conversation_id)
        elif note is not None:
            # Deleted here after it was shared: it goes there too. Others keep what they have.
            with self._database.writing() as connection:
                forget(connection, conversation_id)
            self._replicas.forget(conversation_id)

    def states(self, conversation_id: str, remotes: dict[Key, int]) -> None:
        """Take over the manifests that changed on the server. remotes: versions known so far.

        Their blocks are read when the conversation goes on.
        """
        if not self._texts.is_here(conversation_id):
            return
        has_arrived = False
        for known in self._catalogue.manifests(conversation_id):
            key = (known.fingerprint, known.conversation_id, known.branch)
            if remotes.get(key) == known.version:
                continue
            with self._database.connect() as connection:
                found = read_manifest(connection, known)
            if found is not None:
                remotes[key] = found[1]
                has_arrived |= self._replicas.receive(found[0], self._server, found[1])
        if has_arrived:
            self._on_arrived(conversation_id)

    def _exchange(self, conversation_id: str, note: TextNote | None, version: int | None) -> None:
        remote = 0 if note is None else note.remote
        is_behind = version is not None and version != remote
        if is_behind:
            remote, found = self._pull(conversation_id)
        else:
            found = self._as_it_is(conversation_id)
        before, mine = found.before, found.after
        if mine is None:
            return
        if before is not None and (note is None or note.digest != before.digest):
            self._push(mine, remote)
        elif is_behind:
            self._note(conversation_id, mine, remote)

    def _bring(self, conversation_id: str) -> None:
        remote, found = self._pull(conversation_id)
        if found.after is not None:
            self._note(conversation_id, found.after, remote)

    def _pull(self, conversation_id: str) -> tuple[int, MergedText]:
        """Merge the server's text into ours; return its version, 0 where it is gone.

        What is said while it comes must be sent, so it is merged and looked at in one step.
        """
        with self._database.connect() as connection:
            text = read_text(connection, conversation_id)
        if text is None:
            return 0, self._as_it_is(conversation_id)
        return text.version, self._texts.merge(conversation_id, text)

    def _as_it_is(self, conversation_id: str) -> MergedText:
        mine = self._texts.outgoing(conversation_id)
        return MergedText(mine, mine)

    def _push(self, mine: OutgoingText, remote: int) -> None:
        with self._database.writing() as connection:
            version = put_text(connection, mine)
        # Another machine came in between: what it wrote is taken over next.
        self._note(mine.id, mine, version if version == remote + 1 else remote)

    def _note(self, conversation_id: str, text: OutgoingText, remote: int) -> None:
        self._replicas.note_text(conversation_id, self._server, TextNote(text.digest, remote))
