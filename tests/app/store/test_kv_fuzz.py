from __future__ import annotations

import random
import sqlite3
import zlib
from contextlib import suppress

import pytest

from app.errors import DatabaseError
from app.store.kv_store import KVStore
from engine.errors import StoreError
from tests.app.store.kv_harms import HARMS
from tests.app.store.kv_samples import FINGERPRINT, chain, hashes, job
from tests.app.waiting import WAIT_S

NUM_CASES = 100
BLOCKS = {name: chain(name, 6, size=20_000) for name in ("a", "b", "c")}
GENUINE = {block.hash: block for blocks in BLOCKS.values() for block in blocks}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "kv.db"
    store = KVStore(path, 1 << 26)
    for name, blocks in BLOCKS.items():
        store.submit(job(name, blocks))
    assert store.close(WAIT_S)
    return path.read_bytes()


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
        assert store.flush(WAIT_S)
        if number == 2:
            # Where this comes upon the damage, what was written so far goes with the file.
            store.forget("a")
            assert store.flush(WAIT_S)
    assert len(outcomes) == 5
    assert outcomes[-1]
    assert len(list(store.read_blocks(FINGERPRINT, hashes(chain("n4", 3, size=20_000))))) == 3
