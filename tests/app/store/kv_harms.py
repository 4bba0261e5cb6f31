"""Ways in which a kv.db comes to harm; each changes the file at a path by the throw of dice."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from app.store.kv_database import PAGE_SIZE

Harm = Callable[[Path, random.Random], None]


def flip(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(dice.choice([1, 8, 200])):
        # Most of the file is payload; the structure lies at the heads of its pages.
        page = dice.randrange(len(data) // PAGE_SIZE) * PAGE_SIZE
        at = page + dice.randrange(dice.choice([100, 2_000, PAGE_SIZE]))
        data[at] = dice.randrange(256)
    path.write_bytes(data)


def truncate(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))])


def swap_pages(path: Path, dice: random.Random) -> None:
    data = bytearray(path.read_bytes())
    first, second = (dice.randrange(len(data) // PAGE_SIZE) * PAGE_SIZE for _ in range(2))
    one, two = data[first : first + PAGE_SIZE], data[second : second + PAGE_SIZE]
    data[first : first + PAGE_SIZE], data[second : second + PAGE_SIZE] = two, one
    path.write_bytes(data)


def swap_rows(path: Path, dice: random.Random) -> None:
    """Exchange values of two blocks, payloads and one column."""
    column = dice.choice(["hash", "parent", "token_ids", "crc32", "size", "binding"])
    with closing(sqlite3.connect(path)) as connection, connection, suppress(sqlite3.Error):
        first, second = two_of(connection, "blocks", dice)
        swap(connection, "payloads", "payload", first, second)
        swap(connection, "blocks", column, first, second)


def swap_chats(path: Path, dice: random.Random) -> None:
    """Give two conversations each other's body, name, hashes or blocks."""
    column = dice.choice(["body", "conversation_id", "branch", "hashes", "num_tokens", "links"])
    with closing(sqlite3.connect(path)) as connection, connection, suppress(sqlite3.Error):
        first, second = two_of(connection, "manifests", dice)
        if column == "links":
            swap(connection, "manifest_blocks", "manifest_id", first, second, key="manifest_id")
        else:
            table = "bodies" if column == "body" else "manifests"
            swap(connection, table, column, first, second)


def delete_rows(path: Path, dice: random.Random) -> None:
    tables = ["blocks", "payloads", "manifests", "bodies", "manifest_blocks"]
    table = dice.choice(tables)
    with closing(sqlite3.connect(path)) as connection, connection:
        share = dice.choice([2, 3, 10])
        key = "position" if table == "manifest_blocks" else "id"
        connection.execute(f"DELETE FROM {table} WHERE {key} % {share} = {dice.randrange(share)}")


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


def old_format(path: Path, dice: random.Random) -> None:
    """Make it a file of another version, or of another program."""
    harm = dice.choice(
        [
            "PRAGMA user_version = 0",
            "PRAGMA user_version = 99",
            "PRAGMA application_id = 7",
            "ALTER TABLE blocks DROP COLUMN binding",
            "ALTER TABLE blocks RENAME COLUMN crc32 TO checksum",
            "DROP TABLE bodies",
        ]
    )
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(harm)


def other_model(path: Path, dice: random.Random) -> None:
    """Let some of it claim to come from another model, or the other way round."""
    with closing(sqlite3.connect(path)) as connection, connection, suppress(sqlite3.Error):
        table = dice.choice(["blocks", "manifests"])
        query = f"SELECT DISTINCT fingerprint FROM {table} ORDER BY fingerprint"
        known = [row[0] for row in connection.execute(query)]
        old, new = dice.choice(known), dice.choice([*known, b"g" * 32])
        update = f"UPDATE OR REPLACE {table} SET fingerprint = ? WHERE fingerprint = ?"
        connection.execute(update, (new, old))


HARMS: tuple[Harm, ...] = (
    flip,
    flip,
    truncate,
    swap_pages,
    swap_rows,
    swap_chats,
    delete_rows,
    odd_values,
    old_format,
    other_model,
)


def two_of(connection: sqlite3.Connection, table: str, dice: random.Random) -> list[int]:
    """Return two ids of a table."""
    ids = [row[0] for row in connection.execute(f"SELECT id FROM {table} ORDER BY id")]
    return dice.sample(ids, 2)


def swap(
    connection: sqlite3.Connection,
    table: str,
    column: str,
    first: object,
    second: object,
    *,
    key: str = "id",
) -> None:
    """Exchange one column of two rows, unique ones too."""
    query = f"SELECT {column} FROM {table} WHERE {key} = ?"
    (one,), (two,) = (connection.execute(query, (row,)).fetchone() for row in (first, second))
    update = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {key} = ?"
    between = -1 if isinstance(one, int) else b"between"
    if key == column:
        for value, row in ((between, one), (one, two), (two, between)):
            connection.execute(update, (value, row))
        return
    for value, row in ((between, first), (one, second), (two, first)):
        connection.execute(update, (value, row))
