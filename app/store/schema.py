"""Which schema chats.db has, and how it is brought to ours. Knows no row."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from app.errors import DatabaseDamagedError, StoreTooNewError

REVISIONS = ("0001", "0002")
HEAD = REVISIONS[-1]


def revision_of(connection: Connection) -> str | None:
    """Return the revision of the open database, None when it is empty.

    Raises: DatabaseDamagedError when there are tables but not ours; StoreTooNewError when a newer
    version wrote it.
    """
    names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
    if not names:
        return None
    if "alembic_version" not in names:
        raise DatabaseDamagedError("The file holds no conversations of this program.")
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if found is None:
        raise DatabaseDamagedError("The file does not say which schema it has.")
    if found not in REVISIONS:
        raise StoreTooNewError(str(found), HEAD)
    return str(found)


def migrate(connection: Connection) -> None:
    """Bring the open database to HEAD in the connection's transaction."""
    # Importing Alembic costs a tenth of a second that most starts need not pay.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)


def back_up(path: Path, revision: str) -> Path:
    """Copy a database in a consistent state, its WAL included; return the copy's path.

    Raises: sqlite3.Error, OSError.
    """
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    copy = path.with_name(f"{path.name}.backup-{revision}-{stamp}")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy
