"""Which branches of which conversations are known, and whose state is resident.

Owns the sessions and their sequences; asks the memory for room by letting idle sessions go, the
longest idle first, then replies that rest or began later. Knows no templates and no model.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.config import ChatMessage
from engine.errors import OutOfMemoryError, SnapshotError, StoreError
from engine.memory.interface import Match, Memory, SequenceId
from engine.memory.snapshot import session_log
from engine.memory.storage import ColdStore, Manifest, SnapshotJob
from engine.session.session import MessageSpan, Session

log = logging.getLogger(__name__)

REST_AFTER_S = 60.0


class SessionPool:
    """Sessions of every open conversation over one memory.

    max_branches: branches of one conversation that are remembered, more only while replies grow in
    them; older ones are forgotten here (their blocks stay in the tiers until evicted).
    """

    def __init__(
        self,
        memory: Memory,
        fingerprint: bytes,
        store: ColdStore | None,
        *,
        block_size: int,
        max_branches: int = 16,
    ) -> None:
        self._memory = memory
        self._fingerprint = fingerprint
        self._store = store
        self._block_size = block_size
        self._max_branches = max_branches
        self._branches: dict[str, list[Session]] = {}
        # What was read last: mostly it is brought back next, and need not be read twice for that.
        self._at_hand: Manifest | None = None
        self._growing: list[Session] = []
        self._turns = itertools.count(1)

    def sessions(self, conversation_id: str) -> list[Session]:
        """Return the known branches of a conversation, stored ones included."""
        if conversation_id not in self._branches:
            self._branches[conversation_id] = self._stored_sessions(conversation_id)
        return self._branches[conversation_id]

    def best_match(
        self, conversation_id: str, messages: Sequence[ChatMessage]
    ) -> tuple[Session | None, int]:
        """Return the branch that shares most tokens with the messages, and how many messages."""
        best: tuple[int, float] = (0, 0.0)
        found: Session | None = None
        for session in self.sessions(conversation_id):
            key = (session.end_of(session.num_matching(messages)), session.last_used)
            if key[0] > 0 and key > best:
                best, found = key, session
        return found, found.num_matching(messages) if found else 0

    def new_session(self, conversation_id: str) -> Session:
        """Return an empty, registered branch."""
        session = Session(conversation_id, secrets.token_hex(8))
        self._register(session)
        return session

    def branch_off(self, session: Session, num_messages: int) -> Session:
        """Return a registered branch that shares the first num_messages messages."""
        branch = self.detached_fork(session, num_messages)
        self._register(branch)
        return branch

    def adopt(self, conversation_id: str, source: Session, sequence: SequenceId) -> Session:
        """Return a registered branch with the whole log of source and a sequence that holds it."""
        session = source.copy_as(secrets.token_hex(8), len(source.spans))
        session.conversation_id = conversation_id
        session.num_stored = 0
        session.sequence = sequence
        self._register(session)
        return session

    def adopt_log(
        self,
        conversation_id: str,
        token_ids: Sequence[int],
        spans: Sequence[MessageSpan],
        sequence: SequenceId,
    ) -> Session:
        """Return a registered branch with a log of its own and a sequence that holds its start."""
        session = self.new_session(conversation_id)
        session.append(token_ids)
        session.spans.extend(spans)
        session.sequence = sequence
        return session

    def detached_fork(self, session: Session, num_messages: int) -> Session:
        """Return a fork that nothing remembers; its owner must ``release`` it."""
        fork = session.copy_as(secrets.token_hex(8), num_messages)
        if session.sequence is not None:
            length = self._memory.rollback_limit(session.sequence, len(fork.token_ids))
            fork.sequence = self._memory.fork(session.sequence, length)
        return fork

    def fork_whole(self, session: Session, *, is_detached: bool) -> Session:
        """Return a fork that holds everything in place of a session, an open reply included.

        is_detached: nothing remembers it; its owner must ``discard`` it.
        """
        fork = session.copy_whole(secrets.token_hex(8))
        assert session.sequence is not None
        fork.sequence = self._memory.fork(session.sequence, self._memory.length(session.sequence))
        if not is_detached:
            self._register(fork)
        return fork

    def begin(self, session: Session) -> None:
        """Note that a reply grows in a session from now on."""
        session.begun = session.turn = next(self._turns)
        self._growing.append(session)

    def end(self, session: Session) -> None:
        """Note that the reply in a session is finished; harmless when repeated."""
        session.begun = None
        if session in self._growing:
            self._growing.remove(session)

    def look_again(self, conversation_id: str) -> bool:
        """Take in branches that came into the store from elsewhere; True when there were any.

        A longer form of a known branch takes its place, unless a reply grows there.
        """
        known = self._branches.get(conversation_id)
        if known is None:
            return True
        is_new = False
        for found in self._stored_sessions(conversation_id):
            old = next((session for session in known if session.branch == found.branch), None)
            if old is None:
                self._register(found)
            elif not old.is_growing and len(found.token_ids) > len(old.token_ids):
                self.discard(old)
                known[known.index(old)] = found
            else:
                continue
            is_new = True
        return is_new

    def bring_back(self, session: Session) -> Match:
        """Make a session's state resident, from the store where it must; return what was found."""
        session.touch()
        if session.sequence is not None:
            return Match(hot=self._memory.length(session.sequence))
        manifest = self._manifest(session)
        if manifest is None:
            session.sequence = self._memory.create()
            return Match()
        try:
            session.sequence, _, match = self._memory.restore(manifest)
        except SnapshotError as error:
            log.warning("stored state of %s is unusable: %s", session.conversation_id, error.detail)
            session.sequence = self._memory.create()
            return Match(damaged=1)
        return match

    def attach(self, session: Session) -> Match:
        """Put every reusable token of a resident session's log in place, but the last.

        Idle sessions are let go where they stand in the way of tokens that are known to be stored.
        """
        assert session.sequence is not None
        memory, sequence = self._memory, session.sequence
        memory.truncate(sequence, len(session.token_ids) - 1)
        found = memory.attach(sequence, session.token_ids)
        while memory.length(sequence) < session.num_stored - self._block_size:
            if not self.make_room(session):
                break
            more = memory.attach(sequence, session.token_ids)
            found = replace(more, cold=found.cold + more.cold, warm=found.warm + more.warm)
        return found

    def snapshot(self, session: Session) -> bool:
        """Queue what the store lacks of a session; True when there was something to write."""
        if self._store is None or session.sequence is None:
            return False
        self._at_hand = None
        job = self._memory.snapshot(
            session.sequence,
            session.conversation_id,
            session.branch,
            session.to_log(),
            borders=[span.end for span in session.spans],
        )
        if job is None:
            return False
        job.on_done = _counting(job, session)
        self._store.submit(job)
        return True

    def make_room(self, keep: Session) -> bool:
        """Let the longest idle resident session go; False when there is none but ``keep``.

        Before the first one goes, all of them get as small as they can.
        """
        idle = [s for s in self._resident() if s is not keep and not s.is_growing]
        if not idle:
            return False
        if self._rest([s for s in idle if not s.is_resting]):
            return True
        self.release(min(idle, key=lambda session: session.last_used))
        return True

    def rest(self, conversation_id: str) -> None:
        """Let a conversation that is not used now take as little room as its codec allows."""
        self._rest([s for s in self._branches.get(conversation_id, []) if s.sequence is not None])

    def rest_idle(self, keep: Session) -> None:
        """Do the same with every session but one that was not used for a while."""
        deadline = time.monotonic() - REST_AFTER_S
        others = [s for s in self._resident() if s is not keep and not s.is_growing]
        self._rest([s for s in others if s.last_used < deadline and not s.is_resting])

    def allocate(self, session: Session, num_tokens: int) -> bool:
        """Place num_tokens more tokens of a growing session, letting others go where needed.

        False: one that began earlier needs the room; try again when it has had its turn.
        Raises: OutOfMemoryError when the session alone fills the budget.
        """
        assert session.sequence is not None
        last_turn, session.turn = session.turn, next(self._turns)
        while not self._memory.allocate([(session.sequence, num_tokens)]):
            if self.make_room(session) or self._take_room(session, last_turn):
                continue
            if any(_goes_first(other, session, last_turn) for other in self._growing):
                return False
            raise OutOfMemoryError("The memory budget for conversations is too small for this one.")
        return True

    def release(self, session: Session) -> None:
        """Save a session and give its sequence up; its blocks stay reusable until evicted."""
        if session.sequence is None:
            return
        self.snapshot(session)
        self._memory.rest(session.sequence)
        self.discard(session)

    def discard(self, session: Session) -> None:
        """Give a session's sequence up without saving it."""
        if session.sequence is not None:
            self._memory.release(session.sequence)
            session.sequence = None

    def forget(self, conversation_id: str) -> None:
        """Drop every branch of a conversation, here and in the store."""
        for session in self._branches.pop(conversation_id, []):
            self.discard(session)
        self._at_hand = None
        if self._store is not None:
            self._store.forget(conversation_id)

    def release_conversation(self, conversation_id: str) -> None:
        """Give a conversation's hot memory back; what it has read stays in the store."""
        for session in self._branches.get(conversation_id, []):
            self.release(session)

    def release_all(self) -> None:
        """Save and give up every session."""
        for session in self._resident():
            self.snapshot(session)
            self.discard(session)

    def resident_length(self, session: Session) -> int:
        """Return how many tokens of a session are in place now."""
        return 0 if session.sequence is None else self._memory.length(session.sequence)

    def _rest(self, sessions: Sequence[Session]) -> bool:
        """Rest resident sessions; False when there are none."""
        for session in sessions:
            assert session.sequence is not None
            self._memory.rest(session.sequence)
            session.is_resting = True
        return bool(sessions)

    def _take_room(self, session: Session, last_turn: int) -> bool:
        """Let the youngest reply go that does not go first; it is brought back at its next turn."""
        others = [
            other
            for other in self._growing
            if other is not session
            and other.sequence is not None
            and not _goes_first(other, session, last_turn)
        ]
        if not others:
            return False
        youngest = max(others, key=lambda other: other.begun or 0)
        is_known = youngest in self._branches.get(youngest.conversation_id, [])
        (self.release if is_known else self.discard)(youngest)
        return True

    def _resident(self) -> list[Session]:
        return [s for branch in self._branches.values() for s in branch if s.sequence is not None]

    def _register(self, session: Session) -> None:
        branches = self.sessions(session.conversation_id)
        branches.append(session)
        idle = [branch for branch in branches[:-1] if not branch.is_growing]
        idle.sort(key=lambda branch: branch.last_used)
        for oldest in idle[: max(0, len(branches) - self._max_branches)]:
            branches.remove(oldest)
            self.discard(oldest)

    def _manifest(self, session: Session) -> Manifest | None:
        if not session.num_stored:
            return None
        manifest, self._at_hand = self._at_hand, None
        if manifest is not None and _is_of(manifest, session):
            return manifest
        found = self._manifests(session.conversation_id, session.branch)
        return next(iter(found), None)

    def _stored_sessions(self, conversation_id: str) -> list[Session]:
        manifests = self._manifests(conversation_id)
        self._at_hand = next(iter(manifests), None)
        found = [self._stored_session(one) for one in manifests]
        return [session for session in reversed(found) if session is not None]

    def _manifests(self, conversation_id: str, branch: str | None = None) -> Sequence[Manifest]:
        """Return the stored branches, the newest first; a store that breaks down has none.

        branch: the only one that is wanted.
        """
        if self._store is None:
            return ()
        try:
            return self._store.read_manifests(self._fingerprint, conversation_id, branch)
        except StoreError as error:
            log.warning("what is stored of %s cannot be read: %s", conversation_id, error.detail)
            return ()

    def _stored_session(self, manifest: Manifest) -> Session | None:
        try:
            session = Session.from_log(
                manifest.conversation_id, manifest.branch, session_log(manifest)
            )
        except SnapshotError as error:
            log.warning("a stored branch of %s is unusable: %s", manifest.conversation_id, error)
            return None
        session.num_stored = manifest.num_tokens
        session.touch()
        return session


def _is_of(manifest: Manifest, session: Session) -> bool:
    """Tell whether a manifest is a session's, and still as long as what is stored of that."""
    same_branch = (manifest.conversation_id, manifest.branch) == (
        session.conversation_id,
        session.branch,
    )
    return same_branch and manifest.num_tokens == session.num_stored


def _goes_first(other: Session, session: Session, last_turn: int) -> bool:
    """Tell whether a growing session began before another one and is not interrupted.

    Whether it is shows in its turns; before its own second one nobody can tell.
    """
    assert session.begun is not None
    is_older = other.begun is not None and other.begun < session.begun
    return is_older and (other.turn > last_turn or last_turn == session.begun)


def _counting(job: SnapshotJob, session: Session) -> Callable[[bool], None]:
    """Return what the writer thread calls: the session learns what really was stored."""
    release, num_tokens = job.on_done, job.manifest.num_tokens

    def done(written: bool) -> None:
        if written:
            session.num_stored = min(num_tokens, len(session.token_ids))
        release(written)

    return done
