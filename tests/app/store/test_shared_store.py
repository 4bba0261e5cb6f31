"""The shared store on a real server: sending, taking over, and all that can go wrong."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.errors import (
    SharedAddressError,
    SharedRefusedError,
    SharedUnreachableError,
    SharedUnusableError,
)
from app.events import SharedStoreChanged
from app.store.kv_store import KVStore
from app.store.shared import reader as shared_reader
from app.store.shared import replication as shared_replication
from app.store.shared.database import SharedDatabase
from app.store.shared.reads import list_manifests, read_blocks, read_text
from app.store.shared.replication import Progress, Replication
from app.store.shared.store import SharedStore, look
from app.store.shared.text import OutgoingText
from app.store.shared.writes import lacking, put_blocks, put_manifest, put_text, sweep
from app.store.tiered_store import TieredStore
from engine.memory.storage import StoredBlock
from tests.app.store.kv_samples import FINGERPRINT, chain, hashes, job
from tests.app.waiting import wait_until
from tests.postgres import PASSWORD

MIB = 1 << 20
WAIT_S = 300.0


class NoTexts:
    """Conversations that are here, and have no text."""

    def __init__(self, *ids: str) -> None:
        self._ids = list(ids)

    def ids(self) -> list[str]:
        return self._ids

    def is_here(self, conversation_id: str) -> bool:
        return conversation_id in self._ids

    def outgoing(self, conversation_id: str) -> None:
        return None

    def merge(self, conversation_id: str, text: object) -> None:
        raise AssertionError("there are no texts")


class Home:
    """One machine's kv.db and shared store."""

    def __init__(self, folder: Path, *conversations: str) -> None:
        self.kv = KVStore(folder / "kv.db", 256 * MIB)
        self.states: list[SharedStoreChanged] = []
        self.arrived: list[str] = []
        self.shared = SharedStore(
            self.kv.replicas,
            NoTexts(*conversations),
            on_change=self.states.append,
            on_arrived=self.arrived.append,
        )
        self.tiers = TieredStore(self.kv, self.shared)

    def settle(self) -> None:
        assert self.kv.flush(WAIT_S)
        assert self.shared.wait_settled(WAIT_S).is_settled

    def read(self, blocks: list[StoredBlock]) -> list[StoredBlock]:
        return list(self.tiers.read_blocks(FINGERPRINT, hashes(blocks)))

    def close(self) -> None:
        self.shared.close(1.0)
        self.kv.close(WAIT_S)


@pytest.fixture
def homes(tmp_path, monkeypatch) -> Iterator[list[Home]]:
    """Two machines, which know of the conversations "c" and "d"."""
    # A loaded machine of the tests is no slow server.
    monkeypatch.setattr(shared_reader, "WAIT_S", WAIT_S)
    opened = [Home(tmp_path / name, "c", "d") for name in ("a", "b")]
    yield opened
    for home in opened:
        home.close()


def test_what_one_machine_stores_another_one_reads(homes, shared_url):
    first, second = homes
    blocks, more = chain("a", 12), chain("b", 3)
    for home in homes:
        home.shared.set_url(shared_url)
    first.tiers.submit(job("c", blocks, body=b"log"))
    first.settle()
    first.tiers.submit(job("d", more))
    first.settle()
    # The other one was told, and has the manifest at once; blocks come when they are asked for.
    second.settle()
    # Of what is told at once, either may come first.
    wait_until(lambda: {"c", "d"} <= set(second.arrived))
    (manifest,) = second.tiers.read_manifests(FINGERPRINT, "c")
    assert (manifest.body, manifest.block_hashes) == (b"log", hashes(blocks))
    assert second.kv.num_blocks() == 0
    assert second.read(blocks) == blocks
    assert second.read(more) == more
    asked = [*hashes(blocks), b"?" * 16]
    assert second.tiers.existing(FINGERPRINT, asked) == set(hashes(blocks))
    assert second.tiers.kept(FINGERPRINT, asked) == frozenset()
    # What was taken over is not sent back.
    second.settle()
    assert "c" not in first.arrived


def test_local_and_remote_blocks_come_in_the_order_asked_for(homes, shared_url):
    first, second = homes
    blocks = chain("a", 9)
    first.shared.set_url(shared_url)
    first.tiers.submit(job("c", blocks))
    first.settle()
    second.tiers.submit(job("c", blocks[:5], new=[blocks[0], blocks[3], blocks[4]]))
    assert second.kv.flush(WAIT_S)
    second.shared.set_url(shared_url)
    second.settle()
    assert second.read(blocks) == blocks


def test_only_what_the_server_lacks_is_sent(homes, shared_url, monkeypatch):
    sent: list[bytes] = []

    def note(connection, fingerprint, new):
        sent.extend(block.hash for block in new)
        put_blocks(connection, fingerprint, new)

    monkeypatch.setattr("app.store.shared.sending.put_blocks", note)
    first, second = homes
    blocks = chain("a", 6)
    for home, known in ((first, 4), (second, 6)):
        home.shared.set_url(shared_url)
        home.settle()
        home.tiers.submit(job("c", blocks[:known]))
        home.settle()
    assert sorted(sent) == sorted(hashes(blocks))


def test_a_server_that_goes_away_and_comes_back(homes, shared_url, postgres, monkeypatch):
    first, _ = homes
    is_cut = threading.Event()

    def cut_off(connection, fingerprint, new):
        put_blocks(connection, fingerprint, new)
        if not is_cut.is_set():
            is_cut.set()
            postgres.stop()

    monkeypatch.setattr("app.store.shared.sending.put_blocks", cut_off)
    blocks = chain("a", 120)
    first.shared.set_url(shared_url)
    done = []
    first.tiers.submit(job("c", blocks, done=done))
    assert is_cut.wait(WAIT_S)
    wait_until(lambda: first.shared.state.error is not None)
    assert first.shared.state.error.kind == "SharedUnreachableError"
    # Meanwhile everything is as without it.
    first.tiers.submit(job("d", chain("d", 3), done=done))
    assert first.kv.flush(WAIT_S)
    assert done == [True, True]
    assert first.read(blocks) == blocks
    postgres.start()
    wait_until(lambda: first.shared.state.is_connected and not first.shared.state.num_waiting)
    first.settle()
    database = SharedDatabase(shared_url)
    with database.connect() as connection:
        assert {one.conversation_id for one in list_manifests(connection)} == {"c", "d"}
        assert read_blocks(connection, FINGERPRINT, hashes(blocks)) == blocks
    database.close()


def test_a_frozen_server_holds_nobody_up(homes, shared_url, postgres, monkeypatch):
    first, second = homes
    blocks = chain("a", 4)
    first.shared.set_url(shared_url)
    first.tiers.submit(job("c", blocks))
    first.settle()
    second.shared.set_url(shared_url)
    second.settle()
    assert second.tiers.existing(FINGERPRINT, hashes(blocks))
    monkeypatch.setattr(shared_reader, "WAIT_S", 0.2)
    postgres.freeze()
    try:
        assert second.read(blocks) == []
        # From now on it is not even asked.
        assert second.tiers.existing(FINGERPRINT, hashes(blocks)) == frozenset()
        assert second.shared.state.error is not None
        second.tiers.submit(job("c", blocks))
        homes.remove(second)
        second.close()
    finally:
        postgres.thaw()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"password": "wrong"}, SharedRefusedError),
        ({"port": 9}, SharedUnreachableError),
        ({"database": "nowhere"}, SharedUnusableError),
    ],
)
def test_what_is_wrong_with_an_address_is_said(postgres, homes, change, kind, caplog):
    url = postgres.url(**{"database": "postgres", **change})
    with pytest.raises(kind):
        look(url)
    home, _ = homes
    caplog.set_level(logging.INFO)
    home.shared.set_url(url)
    progress = home.shared.wait_settled(WAIT_S)
    assert isinstance(progress.error, kind)
    assert home.shared.state.error.kind == kind.__name__
    assert not home.tiers.existing(FINGERPRINT, [b"x" * 16])
    for secret in (PASSWORD, "open%20sesame", "wrong"):
        assert secret not in caplog.text
        assert secret not in f"{progress.error} {progress.error.detail}"


def test_an_address_that_makes_no_sense_is_not_tried_again(homes):
    home, _ = homes
    for url in ("http://host/database", "postgresql://user:se%zz@host/database"):
        with pytest.raises(SharedAddressError) as caught:
            look(url)
        assert "se%zz" not in caught.value.detail
    home.shared.set_url("http://host/database")
    assert isinstance(home.shared.wait_settled(WAIT_S).error, SharedAddressError)
    home.shared.set_url("")
    assert home.shared.state == SharedStoreChanged()


def test_what_is_noted_while_it_finds_nothing_left_is_still_to_be_done(
    tmp_path, shared_url, monkeypatch
):
    begun, may_go_on, noted = threading.Event(), threading.Event(), []
    home = Home(tmp_path / "a", "c")

    def is_here(conversation_id: str) -> bool:
        if conversation_id == "late":
            begun.set()
            assert may_go_on.wait(WAIT_S)
        return True

    def note(replication: Replication, *found: object) -> None:
        if not noted:
            noted.append("late")
            replication.note("late")
        note_progress(replication, *found)

    note_progress = Replication._note
    monkeypatch.setattr(Replication, "_note", note)
    monkeypatch.setattr(home.shared._texts, "is_here", is_here)
    home.shared.set_url(shared_url)
    assert begun.wait(WAIT_S)
    assert not home.shared.wait_settled(0.0).is_settled
    may_go_on.set()
    home.settle()
    home.close()


def test_one_thread_at_a_time_tells_how_it_stands(shared_url, tmp_path, monkeypatch):
    home, is_telling, together = Home(tmp_path / "a"), threading.Lock(), []
    home.shared.set_url(shared_url)
    home.settle()
    replication = home.shared._replication
    other = threading.Thread(target=replication.wake)

    def tell(replication: Replication, progress: Progress) -> None:
        if not is_telling.acquire(blocking=False):
            together.append(progress)
            return
        if other.ident is None:
            other.start()
            # It ends only where it need not wait for this.
            other.join(0.2)
        is_telling.release()

    monkeypatch.setattr(replication, "_on_progress", tell)
    replication.wake()
    other.join()
    home.settle()
    assert together == []
    home.close()


def test_a_user_without_rights_is_told_so(postgres, shared_url):
    with psycopg.connect(shared_url, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    with pytest.raises(SharedUnusableError, match="does not let this user"):
        look(shared_url.replace("reprise:open%20sesame", "guest:guest"))


def test_machines_that_write_the_same_blocks_at_once_agree(shared_url):
    databases = [SharedDatabase(shared_url) for _ in range(4)]
    shared, own = chain("system", 20, size=2_000), [chain(f"x{i}", 5, size=2_000) for i in range(4)]
    gate, errors = threading.Barrier(4), []

    def write(at: int) -> None:
        try:
            database = databases[at]
            database.make()
            manifest = job(f"c{at}", [*shared, *own[at]]).manifest
            gate.wait()
            with database.writing() as connection:
                missing = lacking(connection, FINGERPRINT, manifest.block_hashes)
                new = [b for b in reversed([*shared, *own[at]]) if b.hash in missing]
                put_blocks(connection, FINGERPRINT, new)
            with database.writing() as connection:
                put_manifest(connection, manifest)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with databases[0].connect() as connection:
        for mine in own:
            assert read_blocks(connection, FINGERPRINT, hashes([*shared, *mine])) == [
                *shared,
                *mine,
            ]
    with psycopg.connect(shared_url) as connection:
        query = "SELECT count(*), count(DISTINCT hash) FROM reprise_1.blocks"
        assert connection.execute(query).fetchone() == (40, 40)
    for database in databases:
        database.close()


def test_a_text_is_read_as_it_was_at_one_moment(shared_url):
    database = SharedDatabase(shared_url)
    database.make()
    said = [f"{at:03}" for at in range(150)]

    def write() -> None:
        for count in range(1, len(said) + 1):
            parts = {key: key.encode() for key in said[:count]}
            sent = OutgoingText("c", "Tides", said[count - 1].encode(), parts, (), b"")
            with database.writing() as connection:
                put_text(connection, sent)

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    with database.connect() as connection:
        while writer.is_alive():
            found.append(read_text(connection, "c"))
        found.append(read_text(connection, "c"))
    for text in filter(None, found):
        assert text.messages[-1] == text.document
        assert text.version == len(text.messages)
    assert found[-1].version == len(said)
    database.close()


def test_blocks_that_nothing_names_go_after_days(shared_url):
    database = SharedDatabase(shared_url)
    database.make()
    named, unnamed, fresh = chain("a", 2), chain("b", 3), chain("c", 1)
    with database.writing() as connection:
        put_blocks(connection, FINGERPRINT, [*named, *unnamed])
        put_manifest(connection, job("c", named).manifest)
    with psycopg.connect(shared_url, autocommit=True) as connection:
        days = 8 * 86_400_000_000
        connection.execute("UPDATE reprise_1.blocks SET last_use = last_use - %s", (days,))
    with database.writing() as connection:
        put_blocks(connection, FINGERPRINT, fresh)
        assert sweep(connection) == 3
        assert read_blocks(connection, FINGERPRINT, hashes([*named, *unnamed, *fresh])) == [
            *named,
            *fresh,
        ]
    database.close()


ODD = (
    "UPDATE reprise_1.payloads SET payload = payload || 'x'::bytea",
    "UPDATE reprise_1.payloads SET payload = ''",
    "UPDATE reprise_1.blocks SET size = -1",
    "UPDATE reprise_1.blocks SET codec = 'nonsense'",
    "UPDATE reprise_1.blocks SET token_ids = 'xyz'",
    "UPDATE reprise_1.blocks SET hash = decode(md5(id::text), 'hex')",
    "DELETE FROM reprise_1.payloads",
    "ALTER TABLE reprise_1.blocks DROP COLUMN binding",
    "ALTER TABLE reprise_1.blocks ALTER COLUMN binding TYPE text",
    "ALTER TABLE reprise_1.blocks ALTER COLUMN token_ids TYPE text USING 'a'",
    "UPDATE reprise_1.manifests SET hashes = 'abc'",
    "UPDATE reprise_1.manifests SET num_blocks = 2000000000",
    "ALTER TABLE reprise_1.manifests ALTER COLUMN num_tokens TYPE text",
    "DELETE FROM reprise_1.bodies",
    "DROP SCHEMA reprise_1 CASCADE",
)


@pytest.mark.slow
def test_whatever_lies_on_the_server_it_harms_nobody(homes, postgres, monkeypatch):
    monkeypatch.setattr(shared_replication, "_SLOW", ())
    blocks = chain("a", 4, size=3_000)
    for odd in ODD:
        url = postgres.new_database()
        database = SharedDatabase(url)
        database.make()
        with database.writing() as connection:
            put_blocks(connection, FINGERPRINT, blocks)
            put_manifest(connection, job("c", blocks, body=b"log").manifest)
        database.close()
        home = homes[1]
        home.shared.set_url(url)
        home.settle()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(odd)
        assert [block for block in home.read(blocks) if block not in blocks] == [], odd
        home.shared.set_url("")
        home.shared.set_url(url)
        home.shared.wait_settled(WAIT_S)
        home.shared.set_url("")
        home.kv.clear()


NUM_WRITTEN = 400  # more than are written before the end, and less than the budget
WRITER = """
import sys
from pathlib import Path
from tests.app.store.kv_samples import chain, job
from tests.app.store.test_shared_store import Home

names = [f"c{number}" for number in range(int(sys.argv[3]))]
home = Home(Path(sys.argv[1]), *names)
home.shared.set_url(sys.argv[2])
for number in range(len(names)):
    home.tiers.submit(job(f"c{number}", chain(f"{number}", 10, size=50_000)))
    home.kv.flush(60)
    print(number, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
def test_killed_while_replicating_nothing_is_lost(tmp_path, shared_url):
    command = [sys.executable, "-c", WRITER, str(tmp_path), shared_url, str(NUM_WRITTEN)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 12:
            break
    process.send_signal(signal.SIGKILL)
    process.stdin.close()
    process.stdout.close()
    process.wait()
    home = Home(tmp_path, *(f"c{number}" for number in range(NUM_WRITTEN)))
    assert home.kv.flush(WAIT_S)
    kept = {use.conversation_id: use.num_blocks for use in home.kv.usage()}
    assert len(kept) > 10
    home.shared.set_url(shared_url)
    home.settle()
    home.close()
    database = SharedDatabase(shared_url)
    with database.connect() as connection:
        there = {one.conversation_id: one.hashes for one in list_manifests(connection)}
        assert set(there) == set(kept)
        for keys in there.values():
            assert len(read_blocks(connection, FINGERPRINT, keys)) == len(keys)
    database.close()


def test_damaged_blocks_are_taken_off_the_server(homes, shared_url):
    first, second = homes
    blocks = chain("a", 3)
    first.shared.set_url(shared_url)
    first.tiers.submit(job("c", blocks))
    first.settle()
    second.shared.set_url(shared_url)
    second.settle()
    second.tiers.discard_blocks(FINGERPRINT, [blocks[1].hash])
    assert blocks[1].hash not in second.tiers.existing(FINGERPRINT, hashes(blocks))
    second.shared.note_written()
    second.settle()
    # The next turn of whoever has a sound one puts it back.
    first.tiers.submit(job("c", blocks, body=b"next"))
    first.settle()
    database = SharedDatabase(shared_url)
    with database.connect() as connection:
        assert read_blocks(connection, FINGERPRINT, hashes(blocks)) == blocks
    database.close()
