from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import tracemalloc
from collections import namedtuple
from contextlib import closing, suppress

import pytest

from app.errors import DatabaseFullError
from app.store import kv_database, kv_reads, kv_writer, kv_writes
from app.store.kv_queue import WriteQueue
from app.store.kv_store import KVStore, default_budget
from engine.errors import StoreError
from engine.memory.storage import StoredBlock
from tests.app.store.kv_samples import FINGERPRINT, chain, hashes, job
from tests.app.waiting import WAIT_S, wait_until

MIB = 1 << 20
_SHRINKS = "PRAGMA auto_vacuum = INCREMENTAL"
DiskUsage = namedtuple("DiskUsage", "total used free")


def read(store: KVStore, blocks: list[StoredBlock]) -> list[StoredBlock]:
    return list(store.read_blocks(FINGERPRINT, hashes(blocks)))


def has_ended(store: KVStore) -> bool:
    """Wait for the writer, for which closing does not wait any longer; tell whether it ended."""
    store._writer._thread.join(WAIT_S)
    return not store._writer._thread.is_alive()


@pytest.fixture
def notices():
    return []


@pytest.fixture
def store(tmp_path, notices):
    store = KVStore(tmp_path / "kv.db", 64 * MIB, on_notice=notices.append)
    yield store
    store.close(WAIT_S)


def test_what_was_submitted_is_read_back_after_reopening(tmp_path):
    blocks, done = chain("a", 5), []
    store = KVStore(tmp_path / "kv.db", 64 * MIB)
    store.submit(job("c", blocks, body=b"log", done=done))
    assert store.close(WAIT_S)
    assert done == [True]
    store = KVStore(tmp_path / "kv.db", 64 * MIB)
    assert read(store, blocks) == blocks
    (manifest,) = store.read_manifests(FINGERPRINT, "c")
    assert (manifest.body, manifest.block_hashes, manifest.num_tokens) == (
        b"log",
        hashes(blocks),
        160,
    )
    assert store.existing(FINGERPRINT, [*hashes(blocks), b"?" * 16]) == set(hashes(blocks))
    assert store.read_manifests(b"other model", "c") == []
    assert not store.existing(b"other model", hashes(blocks))
    store.close(WAIT_S)


def test_a_file_of_larger_pages_stays_in_use(tmp_path, monkeypatch, notices):
    path, blocks = tmp_path / "kv.db", chain("a", 8)
    with monkeypatch.context() as former:
        former.setattr(kv_database, "_BEFORE_TABLES", ("PRAGMA page_size = 65536", _SHRINKS))
        store = KVStore(path, 64 * MIB)
        store.submit(job("c", blocks[:6]))
        assert store.close(WAIT_S)
    store = KVStore(path, 64 * MIB, on_notice=notices.append)
    store.submit(job("c", blocks, new=blocks[6:]))
    assert store.flush(WAIT_S)
    assert read(store, blocks) == blocks
    before = store.used_bytes()
    store.forget("c")
    store.compact()
    assert store.used_bytes() < before / 2
    assert store.close(WAIT_S)
    assert not notices
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA page_size").fetchone() == (65536,)


def test_a_state_written_again_takes_no_more_room(tmp_path):
    store, blocks = KVStore(tmp_path / "kv.db", 64 * MIB), chain("a", 2)
    for at in range(3):
        store.submit(job("c", blocks, body=bytes([at]) * MIB))
        assert store.flush(WAIT_S)
    assert store.close(WAIT_S)
    with closing(sqlite3.connect(tmp_path / "kv.db")) as connection:
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_blocks_are_yielded_in_the_order_asked_for_without_missing_ones(store):
    blocks = chain("a", 4)
    store.submit(job("c", blocks))
    assert store.flush(WAIT_S)
    asked = [blocks[2].hash, b"?" * 16, blocks[0].hash]
    found = [block.hash for block in store.read_blocks(FINGERPRINT, asked)]
    assert found == [blocks[2].hash, blocks[0].hash]


def test_reading_holds_the_payloads_of_one_batch(store, monkeypatch):
    blocks = chain("a", 12, size=100_000)
    store.submit(job("one", blocks))
    assert store.flush(WAIT_S)
    monkeypatch.setattr(kv_reads, "_BATCH_BYTES", 300_000)
    tracemalloc.start()
    num_read = sum(1 for _ in store.read_blocks(FINGERPRINT, hashes(blocks)))
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_read == 12
    assert most_bytes < 500_000


def test_a_shared_block_is_written_once(store):
    shared = chain("system", 4)
    first = shared + chain("x", 2, parent=shared[-1].hash)
    second = shared + chain("y", 2, parent=shared[-1].hash)
    store.submit(job("c1", first))
    store.submit(job("c2", second))
    assert store.flush(WAIT_S)
    sizes = {block.hash: len(block.payload) for block in first + second}
    assert store.bytes_written == sum(sizes.values())
    by_conversation = {use.conversation_id: use for use in store.usage()}
    assert by_conversation["c1"].num_blocks == 6
    assert by_conversation["c1"].shared_bytes == sum(len(block.payload) for block in shared)


def test_a_turn_writes_only_its_own_blocks(store):
    blocks = chain("a", 6)
    store.submit(job("c", blocks[:4]))
    assert store.flush(WAIT_S)
    before = store.bytes_written
    store.submit(job("c", blocks, new=blocks[4:]))
    assert store.flush(WAIT_S)
    assert store.bytes_written - before == sum(len(block.payload) for block in blocks[4:])
    assert read(store, blocks) == blocks


def test_forgetting_keeps_what_others_name(store):
    shared = chain("system", 3)
    mine = chain("x", 2, parent=shared[-1].hash)
    store.submit(job("c1", shared + mine))
    store.submit(job("c2", shared))
    assert store.flush(WAIT_S)
    store.forget("c1")
    assert store.flush(WAIT_S)
    assert store.existing(FINGERPRINT, hashes(shared + mine)) == set(hashes(shared))
    assert store.read_manifests(FINGERPRINT, "c1") == []


def test_blocks_a_new_manifest_no_longer_names_are_dropped(store):
    old, new = chain("old", 4), chain("new", 3)
    store.submit(job("c", old))
    assert store.flush(WAIT_S)
    store.submit(job("c", old[:1] + new, new=new))
    assert store.flush(WAIT_S)
    assert store.existing(FINGERPRINT, hashes(old + new)) == set(hashes(old[:1] + new))


def test_a_newer_job_takes_in_the_one_that_waits(store):
    assert store.flush(WAIT_S)
    gate = threading.Event()
    held = store._queue.put_command(lambda: gate.wait(WAIT_S))
    blocks, first, second = chain("a", 4), [], []
    store.submit(job("c", blocks[:2], done=first))
    store.submit(job("c", blocks, new=blocks[2:], done=second))
    assert store.pending == 2
    gate.set()
    assert store.flush(WAIT_S)
    assert held.result()
    assert (first, second) == ([True], [True])
    assert read(store, blocks) == blocks


def test_every_job_is_answered_once_also_after_closing(tmp_path):
    store = KVStore(tmp_path / "kv.db", 64 * MIB)
    gate, waiting, late = threading.Event(), [], []
    store._queue.put_command(lambda: gate.wait(WAIT_S))
    store.submit(job("c", chain("a", 2), done=waiting))
    assert not store.close(timeout=0.05)
    store.submit(job("c", chain("a", 2), done=late))
    assert (waiting, late) == ([False], [False])
    gate.set()


def test_closing_does_not_wait_for_a_disk_that_is_stuck(tmp_path, monkeypatch):
    interrupted, is_writing = threading.Event(), threading.Event()

    def stuck(connection, job, *, limit, rest):
        is_writing.set()
        assert interrupted.wait(WAIT_S)
        raise DatabaseFullError("interrupted")

    monkeypatch.setattr(kv_writer, "write_job", stuck)
    store = KVStore(tmp_path / "kv.db", 64 * MIB)
    monkeypatch.setattr(store._database, "interrupt", interrupted.set)
    first, second = [], []
    store.submit(job("c1", chain("a", 2), done=first))
    store.submit(job("c2", chain("b", 2), done=second))
    assert is_writing.wait(WAIT_S)
    assert not store.close(timeout=0.3)
    assert interrupted.is_set()
    assert has_ended(store)
    assert (first, second) == ([False], [False])


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_snapshot_is_written_with_rests_while_the_engine_is_busy(store, monkeypatch, is_busy):
    rests = []
    monkeypatch.setattr(store._queue, "rest", rests.append)
    store.pace_while(lambda: is_busy)
    store.submit(job("c1", chain("a", 6)))
    assert store.flush(WAIT_S)
    assert len(rests) == 6 * is_busy
    assert all(0.0 <= seconds <= kv_writer._LONGEST_REST_S for seconds in rests)


def test_a_rest_ends_when_somebody_waits():
    queue, ended = WriteQueue(), threading.Event()
    queue.put_job(job("c1", chain("a", 1)))
    resting = threading.Thread(target=lambda: (queue.rest(10 * WAIT_S), ended.set()))
    resting.start()
    # It may begin, or look, only after a wait that was short.
    wait_until(lambda: not queue.wait_empty(0.2) and ended.is_set())
    resting.join()


def test_what_is_written_while_the_program_ends_is_taken_back_whole(tmp_path, monkeypatch):
    begun, may_go_on = threading.Event(), threading.Event()

    def insert(*arguments):
        begun.set()
        assert may_go_on.wait(WAIT_S)
        return _insert_block(*arguments)

    _insert_block = kv_writes._insert_block
    monkeypatch.setattr(kv_writes, "_insert_block", insert)
    store, outcome = KVStore(tmp_path / "kv.db", 64 * MIB), []
    monkeypatch.setattr(store._database, "interrupt", may_go_on.set)
    blocks = chain("a", 6)
    store.submit(job("c1", blocks, done=outcome))
    assert begun.wait(WAIT_S)
    assert not store.close(timeout=0.3)
    assert has_ended(store)
    assert outcome == [False]
    with closing(KVStore(tmp_path / "kv.db", 64 * MIB)) as again:
        assert again.num_blocks() == 0
        assert read(again, blocks) == []


def test_what_is_written_but_not_in_its_place_when_time_is_up_is_there_again(tmp_path, monkeypatch):
    store, outcome = KVStore(tmp_path / "kv.db", 64 * MIB), []
    begun, interrupted = threading.Event(), threading.Event()
    assert store.flush(WAIT_S)

    def checkpoint():
        begun.set()
        assert interrupted.wait(WAIT_S)
        return False

    monkeypatch.setattr(store._database, "checkpoint", checkpoint)
    monkeypatch.setattr(store._database, "interrupt", interrupted.set)
    blocks = chain("a", 6)
    store.submit(job("c1", blocks, done=outcome))
    assert begun.wait(WAIT_S)
    assert not store.close(timeout=0.3)
    assert has_ended(store)
    assert outcome == [True]
    with closing(KVStore(tmp_path / "kv.db", 64 * MIB)) as again:
        assert read(again, blocks) == blocks


def test_the_file_stays_in_its_budget_and_the_newest_conversation_is_kept(store):
    store.set_budget(8 * MIB)
    # What one transaction puts into the WAL: the new pages, and those it makes room in.
    transaction = 2 * 30 * 100_000
    for number in range(12):
        blocks = chain(f"conversation{number}", 30)
        store.submit(job(f"c{number}", blocks))
        while not store.flush(0.005):
            assert store.used_bytes() <= 8 * MIB + transaction
        # Before anything is read: what was read is noted later, in a transaction of its own.
        assert store.used_bytes() <= 8 * MIB
        assert read(store, blocks) == blocks


def test_eviction_takes_the_tail_first_and_shared_blocks_last(store):
    store.set_budget(8 * MIB)
    system = chain("system", 10)
    chats = [system + chain(f"chat{n}", 20, parent=system[-1].hash) for n in range(6)]
    for number, blocks in enumerate(chats):
        store.submit(job(f"c{number}", blocks))
        assert store.flush(WAIT_S)
    assert len(read(store, system)) == 10
    for blocks in chats:
        kept = [block.hash for block in read(store, blocks)]
        assert kept == list(hashes(blocks))[: len(kept)]
    assert len(read(store, chats[-1])) == 30


def test_branches_are_read_newest_first_or_the_one_that_is_named(store):
    for branch in ("old", "new"):
        store.submit(job("c", chain("a", 2), branch=branch, body=branch.encode()))
        assert store.flush(WAIT_S)
    found = store.read_manifests(FINGERPRINT, "c")
    assert [(one.branch, one.body) for one in found] == [("new", b"new"), ("old", b"old")]
    assert store.read_manifests(FINGERPRINT, "c", "old") == found[1:]
    assert store.read_manifests(FINGERPRINT, "c", "gone") == []


def test_a_restored_conversation_outlives_one_that_never_was(store):
    first, second, third = chain("1", 30), chain("2", 30), chain("3", 30)
    store.submit(job("c1", first))
    store.submit(job("c2", second))
    assert store.flush(WAIT_S)
    store.read_manifests(FINGERPRINT, "c1")
    store.set_budget(7 * MIB)
    store.submit(job("c3", third))
    assert store.flush(WAIT_S)
    store.submit(job("c4", chain("4", 10)))
    assert store.flush(WAIT_S)
    assert len(read(store, first)) > len(read(store, second))


@pytest.mark.parametrize(
    ("order", "survivor"), [("balanced", "c1"), ("frequency", "c1"), ("recency", "c2")]
)
def test_the_order_of_eviction_follows_the_setting(store, order, survivor):
    chats = {"c1": chain("1", 30), "c2": chain("2", 30)}
    store.set_eviction_order(order)
    store.submit(job("c1", chats["c1"]))
    assert store.flush(WAIT_S)
    for _ in range(3):
        store.read_manifests(FINGERPRINT, "c1")
    store.submit(job("c2", chats["c2"]))
    assert store.flush(WAIT_S)
    store.set_budget(4 * MIB)
    assert store.flush(WAIT_S)
    kept = {name: len(read(store, blocks)) for name, blocks in chats.items()}
    assert max(kept, key=kept.__getitem__) == survivor


def test_a_conversation_larger_than_the_budget_keeps_its_head(store):
    store.set_budget(2 * MIB)
    blocks = chain("a", 60)
    store.submit(job("c", blocks))
    assert store.flush(WAIT_S)
    kept = read(store, blocks)
    assert 5 < len(kept) < 20
    assert kept == blocks[: len(kept)]


def test_lowering_the_budget_shrinks_the_file(store):
    for number in range(5):
        store.submit(job(f"c{number}", chain(f"x{number}", 30)))
    assert store.flush(WAIT_S)
    assert store.used_bytes() > 10 * MIB
    store.set_budget(4 * MIB)
    assert store.flush(WAIT_S)
    assert store.used_bytes() <= 4 * MIB


def test_clear_and_compact_report_the_bytes_really_freed(store):
    store.submit(job("c", chain("a", 60)))
    store.submit(job("d", chain("b", 60)))
    assert store.flush(WAIT_S)
    before = store.used_bytes()
    store.forget("c")
    compacted = store.compact()
    assert compacted.after_bytes == store.used_bytes() < before * 0.6
    assert compacted.after_blocks == store.num_blocks() == 60
    used = store.used_bytes()
    assert store.clear() == used - store.used_bytes() > 0
    assert store.usage() == []
    store.submit(job("c", chain("a", 3)))
    assert store.flush(WAIT_S)
    assert len(read(store, chain("a", 3))) == 3


def test_a_full_disk_fails_the_job_says_so_and_recovers(store, notices, monkeypatch):
    monkeypatch.setattr(
        "app.store.kv_writer.shutil.disk_usage", lambda path: DiskUsage(1000 * MIB, 999 * MIB, MIB)
    )
    done = []
    store.submit(job("c", chain("a", 3), done=done))
    assert store.flush(WAIT_S)
    assert done == [False]
    assert "disk" in store.problem
    assert [notice.kind for notice in notices] == ["kv_not_kept"]
    monkeypatch.undo()
    store.submit(job("c", chain("a", 3), done=done))
    assert store.flush(WAIT_S)
    assert done == [False, True]
    assert store.problem == ""


def test_a_real_full_disk_leaves_the_store_readable(store, monkeypatch):
    blocks, done = chain("a", 3), []
    store.submit(job("c", blocks))
    assert store.flush(WAIT_S)
    with store._database.writing() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    store.submit(job("d", chain("b", 40), done=done))
    assert store.flush(WAIT_S)
    assert done == [False]
    assert "full" in store.problem
    assert read(store, blocks) == blocks


def test_a_second_process_reads_but_does_not_write(store, tmp_path):
    blocks = chain("a", 3)
    store.submit(job("c", blocks))
    assert store.flush(WAIT_S)
    code = f"""
from pathlib import Path
from app.store.kv_store import KVStore
from engine.memory.storage import Manifest, SnapshotJob
store = KVStore(Path({str(tmp_path / "kv.db")!r}), 1 << 26)
done = []
store.submit(SnapshotJob(Manifest("d", "m", b"f", 0, (), b""), (), done.append))
assert store.flush(100)
print(len(list(store.read_blocks({FINGERPRINT!r}, {hashes(blocks)!r}))), done, store.problem)
store.close()
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("3 [False] Another running Reprise")
    store.submit(job("d", chain("b", 2)))
    assert store.flush(WAIT_S)
    assert store.problem == ""


def test_a_payload_moved_to_another_row_with_its_checksum_is_left_out(store, tmp_path):
    blocks = chain("a", 2, size=1000) + chain("b", 1, size=1000)
    store.submit(job("c", blocks))
    assert store.flush(WAIT_S)
    with closing(sqlite3.connect(tmp_path / "kv.db")) as connection, connection:
        rows = connection.execute("SELECT id, crc32, size FROM blocks ORDER BY id").fetchall()
        payload = connection.execute("SELECT payload FROM payloads WHERE id = 1").fetchone()
        connection.execute("UPDATE payloads SET payload = ? WHERE id = 2", payload)
        connection.execute("UPDATE blocks SET crc32 = ?, size = ? WHERE id = 2", rows[0][1:])
    assert read(store, blocks) == [blocks[0], blocks[2]]
    verified = store.verify()
    assert (verified.num_blocks, verified.num_damaged) == (3, 1)
    assert store.flush(WAIT_S)
    assert store.verify().num_damaged == 0


def test_orphans_are_swept_at_the_start(tmp_path):
    store = KVStore(tmp_path / "kv.db", 64 * MIB)
    blocks = chain("a", 4)
    store.submit(job("c", blocks))
    store.close(WAIT_S)
    with closing(sqlite3.connect(tmp_path / "kv.db")) as connection, connection:
        connection.execute("DELETE FROM manifest_blocks WHERE position > 1")
        connection.execute("DELETE FROM payloads WHERE id = 1")
    store = KVStore(tmp_path / "kv.db", 64 * MIB)
    assert store.flush(WAIT_S)
    assert [block.hash for block in read(store, blocks)] == [blocks[1].hash]
    store.close(WAIT_S)


def test_a_damaged_file_is_set_aside_and_started_anew(tmp_path, notices):
    (tmp_path / "kv.db").write_bytes(b"garbage" * 100_000)
    store = KVStore(tmp_path / "kv.db", 64 * MIB, on_notice=notices.append)
    assert [notice.kind for notice in notices] == ["kv_recreated"]
    store.submit(job("c", chain("a", 2)))
    assert store.flush(WAIT_S)
    assert len(read(store, chain("a", 2))) == 2
    assert (tmp_path / "kv.db.damaged").exists()
    store.close(WAIT_S)


def test_damage_found_while_reading_is_a_store_error_and_heals(tmp_path, notices):
    store = KVStore(tmp_path / "kv.db", 64 * MIB)
    blocks = chain("a", 40)
    store.submit(job("c", blocks))
    store.close(WAIT_S)
    data = bytearray((tmp_path / "kv.db").read_bytes())
    for page in range(3, len(data) // 65_536):
        data[page * 65_536 : page * 65_536 + 64] = b"\xff" * 64
    (tmp_path / "kv.db").write_bytes(data)
    store = KVStore(tmp_path / "kv.db", 64 * MIB, on_notice=notices.append)
    with suppress(StoreError):
        read(store, blocks)
    assert store.flush(WAIT_S)
    done = []
    store.submit(job("c", blocks, done=done))
    store.submit(job("c2", chain("b", 3), done=done))
    assert store.flush(WAIT_S)
    assert done[-1]
    assert read(store, chain("b", 3))
    store.close(WAIT_S)


def test_the_default_budget_follows_the_volume(tmp_path, monkeypatch):
    def usage(total: int, free: int) -> None:
        monkeypatch.setattr(
            "app.store.kv_store.shutil.disk_usage", lambda path: DiskUsage(total, 0, free)
        )

    usage(1000 * MIB * 10, 10_000 * MIB)
    assert default_budget(tmp_path / "missing" / "kv.db") == 1000 * MIB
    usage(1000 * MIB * 10, 1_000 * MIB)
    assert default_budget(tmp_path / "kv.db") == 200 * MIB


def test_the_default_budget_does_not_shrink_because_it_is_used(tmp_path, monkeypatch):
    path = tmp_path / "kv.db"
    free = 1_000 * MIB
    disk = DiskUsage(100_000 * MIB, 0, free - 100 * MIB)
    monkeypatch.setattr("app.store.kv_store.shutil.disk_usage", lambda folder: disk)
    with path.open("wb") as file:
        file.truncate(100 * MIB)
    assert default_budget(path) == free // 5
