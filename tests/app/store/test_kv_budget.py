"""Ten times its budget is written to kv.db, in conversations that grow by turns.

REPRISE_BUDGET_MB sets the budget; 200 is the full size, 2 GB are written then.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.store.kv_database import PAGE_SIZE
from app.store.kv_store import KVStore
from app.store.kv_writes import cost_of
from engine.memory.storage import StoredBlock
from tests.app.store.kv_samples import FINGERPRINT, chain, hashes, job

BUDGET_BYTES = int(os.environ.get("REPRISE_BUDGET_MB", "4")) << 20
BLOCK_BYTES = max(100_000, BUDGET_BYTES // 400)
TIMES_WRITTEN = 10
NUM_CHATS = 12


def test_the_file_never_exceeds_its_budget_by_more_than_a_transaction(tmp_path):
    dice = random.Random(3)
    chats: dict[int, list[StoredBlock]] = {number: [] for number in range(NUM_CHATS)}
    written = largest = 0
    store = KVStore(tmp_path / "kv.db", BUDGET_BYTES)
    with sizes_of(tmp_path / "kv.db") as sizes:
        while written < TIMES_WRITTEN * BUDGET_BYTES:
            name = dice.randrange(NUM_CHATS)
            new = chain(f"{name}@{written}", dice.randrange(1, 20), size=BLOCK_BYTES)
            # A conversation that takes half the budget begins anew.
            if len(chats[name]) * BLOCK_BYTES > BUDGET_BYTES // 2:
                chats[name] = []
            chats[name] = chats[name] + new
            store.submit(job(str(name), chats[name], new=new))
            assert store.flush(60)
            assert store.existing(FINGERPRINT, hashes(new)) == set(hashes(new))
            written += sum(map(cost_of, new))
            largest = max(largest, sum(map(cost_of, new)))
    peak = max(file + log for file, log in sizes)
    # What one transaction brings lies in the log, with the pages it frees or splits for that.
    transaction = max(log for _, log in sizes)
    print(f"{peak / BUDGET_BYTES:.3f} of the budget at most, {transaction:,} bytes written at once")
    assert transaction <= 2.5 * largest
    assert max(file for file, _ in sizes) <= BUDGET_BYTES + largest
    assert peak <= BUDGET_BYTES + transaction + 8 * PAGE_SIZE
    assert store.used_bytes() <= BUDGET_BYTES
    assert store.close(60)


@contextmanager
def sizes_of(path: Path) -> Iterator[list[tuple[int, int]]]:
    """Look at the sizes of the file and of its log all the time, from another thread."""
    sizes: list[tuple[int, int]] = []
    is_over = threading.Event()
    log = path.with_name(f"{path.name}-wal")

    def look() -> None:
        while not is_over.wait(0.001):
            with suppress(FileNotFoundError):
                sizes.append((path.stat().st_size, log.stat().st_size))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        is_over.set()
        thread.join()
