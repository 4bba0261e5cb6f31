"""Reads what can be read of a damaged chats.db. Knows table names, no rows' meaning.

Rows are taken by primary key, in shrinking steps around the damage. Where the first page is lost,
the first page of a fresh database is put in its place: the same revisions create the same layout.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

_TABLES = ("conversations", "messages", "visits")
_STEP = 64
# SQLite quotes a damaged schema in its messages, which the driver then cannot decode.
_FAULTS = (sqlite3.Error, UnicodeDecodeError)
_SUFFIXES = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Salvaged:
    """How many rows were kept."""

    conversations: int
    messages: int


def set_aside(path: Path) -> Path:
    """Rename a database with its WAL so that nothing touches it any more; return the new path."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    target = path.with_name(f"{path.name}.damaged-{stamp}")
    for suffix in _SUFFIXES:
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(target.with_name(target.name + suffix))
    return target


def remove(path: Path) -> None:
    """Delete a database with its WAL, if it is there."""
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def count_rows(database: sqlite3.Connection) -> Salvaged:
    """Return what a database of our schema holds."""
    return Salvaged(_count(database, "conversations"), _count(database, "messages"))


def salvage(damaged: Path, fresh: sqlite3.Connection) -> Salvaged:
    """Copy every readable row of the damaged file into a fresh database of our schema.

    fresh is committed. Messages whose conversation is lost get one titled "Recovered"; a message
    whose parent is lost becomes a first one.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "damaged.db"
        _copy(damaged, copy)
        if not _is_readable(copy):
            _graft_first_page(copy, fresh)
        fresh.execute("PRAGMA foreign_keys = OFF")
        with closing(_open_damaged(copy)) as source:
            for table in _TABLES:
                _copy_table(source, fresh, table)
    _mend(fresh)
    fresh.commit()
    return count_rows(fresh)


def _copy(damaged: Path, copy: Path) -> None:
    for suffix in _SUFFIXES[:2]:
        part = damaged.with_name(damaged.name + suffix)
        if part.exists():
            shutil.copyfile(part, copy.with_name(copy.name + suffix))


def _open_damaged(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def _is_readable(path: Path) -> bool:
    try:
        with closing(_open_damaged(path)) as connection:
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except _FAULTS:
        return False
    return not names.isdisjoint(_TABLES)


def _graft_first_page(path: Path, fresh: sqlite3.Connection) -> None:
    """Replace the first page, where the header and the list of tables begin."""
    with tempfile.TemporaryDirectory() as folder:
        donor = Path(folder) / "donor.db"
        with closing(sqlite3.connect(donor)) as target:
            fresh.backup(target)
        page_size = int(fresh.execute("PRAGMA page_size").fetchone()[0])
        page = bytearray(donor.read_bytes()[:page_size])
    num_pages = path.stat().st_size // page_size
    page[28:32] = num_pages.to_bytes(4, "big")
    page[32:40] = bytes(8)
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.write(page)


def _copy_table(source: sqlite3.Connection, fresh: sqlite3.Connection, table: str) -> None:
    columns = _columns(fresh, table)
    with suppress(*_FAULTS):
        # An older file lacks some; one whose list of tables is lost is taken for one of ours.
        columns = [name for name in columns if name in _columns(source, table)]
    if not columns:
        return
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})"
    for row in _rows(source, table, names):
        with suppress(*_FAULTS):
            fresh.execute(insert, row)


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table})")]


def _rows(source: sqlite3.Connection, table: str, names: str) -> Iterator[tuple[object, ...]]:
    """Yield the readable rows in order of key, stepping over damaged pages."""
    query = f"SELECT {names} FROM {table} WHERE seq > ? AND seq <= ? ORDER BY seq"
    seq, end, step = 0, _last_key(source, table), _STEP
    while seq < end:
        try:
            rows = source.execute(query, (seq, seq + step)).fetchall()
        except _FAULTS:
            if step > 1:
                step //= 2
                continue
            rows = []
        yield from rows
        seq += step
        step = min(step * 2, _STEP)


def _last_key(source: sqlite3.Connection, table: str) -> int:
    try:
        return int(source.execute(f"SELECT max(seq) FROM {table}").fetchone()[0] or 0)
    except _FAULTS:
        return _last_key_by_probing(source, table)


def _last_key_by_probing(source: sqlite3.Connection, table: str) -> int:
    # The rightmost page is lost; no key can be larger than what the file has room for.
    try:
        pages = int(source.execute("PRAGMA page_count").fetchone()[0])
    except _FAULTS:
        return 0
    return min(pages * 100, 200_000)


def _mend(fresh: sqlite3.Connection) -> None:
    """Give orphans a home, so that every kept message can be reached."""
    fresh.execute(
        "INSERT INTO conversations (id, title, created_at, updated_at) "
        "SELECT conversation_id, 'Recovered', min(created_at), max(created_at) FROM messages "
        "WHERE conversation_id NOT IN (SELECT id FROM conversations) GROUP BY conversation_id"
    )
    fresh.execute("UPDATE messages SET parent_id = NULL WHERE parent_id = id")
    fresh.execute(
        "UPDATE messages SET parent_id = NULL WHERE parent_id NOT IN (SELECT id FROM messages)"
    )
    fresh.execute(
        "UPDATE conversations SET leaf_id = (SELECT id FROM messages "
        "WHERE conversation_id = conversations.id AND deleted_at IS NULL ORDER BY seq DESC LIMIT 1)"
        " WHERE leaf_id IS NULL OR leaf_id NOT IN (SELECT id FROM messages)"
    )
    fresh.execute("DELETE FROM visits WHERE conversation_id NOT IN (SELECT id FROM conversations)")


def _count(fresh: sqlite3.Connection, table: str) -> int:
    return int(fresh.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
