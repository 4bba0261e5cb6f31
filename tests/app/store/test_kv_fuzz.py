from __future__ import annotations

import random
import sqlite3
import zlib
from contextlib import closing, suppress
from pathlib import Path

import pytest

from app.errors import DatabaseError
from app.store.kv_store import KVStore
from engine.errors import StoreError
from tests.app.store.kv_samples import FINGERPRINT, chain, hashes, job

NUM_CASES = 100
BLOCKS = {name: chain(name, 6, size=20_000) for name in ("a", "b", "c")}
GENUINE = {block.hash: block for blocks in BLOCKS.values() for block in blocks}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "kv.db"
    store = KVStore(path, 1 << 26)
    for name, blocks in BLOCKS.items():
        store.submit(job(name, blocks))
    store.close()
    return path.read_bytes()


def flip(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice([1, 8, 200])):
        # Most of the file is payload; the structure lies at the heads of its pages.
        page = dice.randrange(len(data) // 65_536) * 65_536
        at = page + dice.randrange(dice.choice([100, 2_000, 65_536]))
        data[at] = dice.randrange(256)
    path.write_bytes(data)


def truncate(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def swap_pages(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    first, second = (dice.randrange(len(data) // 65_536) * 65_536 for _ in range(2))
    one, two = data[first : first + 65_536], data[second : second + 65_536]
    data[first : first + 65_536], data[second : second + 65_536] = two, one
    path.write_bytes(data)


def swap_rows(path: Path, dice: random.Random) -> None:
    columns = ("hash", "parent", "token_ids", "crc32", "size", "binding")
    column = dice.choice(columns)
    first, second = dice.sample(range(1, 19), 2)
    with closing(sqlite3.connect(path)) as connection, connection, suppress(sqlite3.Error):
        for table, name in (("payloads", "payload"), ("blocks", column)):
            query = f"SELECT {name} FROM {table} WHERE id = ?"
            one = connection.execute(query, (first,)).fetchone()
            two = connection.execute(query, (second,)).fetchone()
            update = f"UPDATE OR IGNORE {table} SET {name} = ? WHERE id = ?"
            connection.execute(update, (*one, second))
            connection.execute(update, (*two, first))


def odd_values(path: Path, dice: random.Random) -> None:
    columns = {
        "blocks": ("hash", "codec", "crc32", "size", "hits", "last_use", "token_ids", "binding"),
        "manifests": ("num_tokens", "num_blocks", "hashes", "body_size", "last_use", "hits"),
        "payloads": ("payload",),
        "bodies": ("body",),
    }
    with closing(sqlite3.connect(path)) as connection, connection:
        table = dice.choice(list(columns))
        value = dice.choice([b"", b"xyz", "text", -1, 2**62, 1.5])
        column = dice.choice(columns[table])
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE id % 2 = 1", (value,))


HARMS = (flip, flip, truncate, swap_pages, swap_rows, odd_values)


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_a_damaged_store_opens_or_starts_anew_and_yields_nothing_false(tmp_path, sound, seed):
    dice = random.Random(seed)
    path = tmp_path / "kv.db"
    path.write_bytes(sound)
    with suppress(sqlite3.Error):
        HARMS[seed % len(HARMS)](path, dice)
    store = KVStore(path, 1 << 26)
    try:
        exercise(store)
    finally:
        store.close()


def exercise(store: KVStore) -> None:
    for name, blocks in BLOCKS.items():
        with suppress(StoreError):
            store.read_manifests(FINGERPRINT, name)
            store.existing(FINGERPRINT, hashes(blocks))
            for block in store.read_blocks(FINGERPRINT, hashes(blocks)):
                is_whole = zlib.crc32(block.payload) == block.crc32
                assert not is_whole or block == GENUINE[block.hash]
    with suppress(StoreError, DatabaseError):
        store.verify()
        store.usage()
    outcomes: list[bool] = []
    for number in range(5):
        store.submit(job(f"new{number}", chain(f"n{number}", 3, size=20_000), done=outcomes))
        assert store.flush(20)
    store.forget("a")
    assert store.flush(20)
    assert len(outcomes) == 5
    assert outcomes[-1]
    assert len(list(store.read_blocks(FINGERPRINT, hashes(chain("n4", 3, size=20_000))))) == 3
