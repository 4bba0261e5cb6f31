"""The declarative base of chats.db and its column types. Knows no table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from sqlalchemy import BigInteger, Dialect, Integer, MetaData, Text
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy.types import TypeDecorator

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

# Migrations address constraints by name, so every one of them needs a stable name.
NAMING = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


def now() -> datetime:
    """Return the present moment, aware, in UTC."""
    return datetime.now(UTC)


class UtcTime(TypeDecorator[datetime]):
    """An aware datetime held as microseconds since 1970: exact, sortable, quick to read."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Turn an aware datetime into microseconds since 1970."""
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Turn microseconds since 1970 into an aware datetime."""
        if value is None:
            return None
        try:
            return _EPOCH + timedelta(microseconds=value)
        except (OverflowError, TypeError):
            # A flipped bit in a row must not make the conversation unreadable.
            return _EPOCH


Key = Annotated[str, mapped_column(Text)]
Words = Annotated[str, mapped_column(Text, default="", server_default="")]
Flag = Annotated[bool, mapped_column(default=False, server_default="0")]
Moment = Annotated[datetime, mapped_column(UtcTime)]
Serial = Annotated[int, mapped_column(Integer, primary_key=True)]


class Base(DeclarativeBase):
    """Base of the rows of chats.db."""

    metadata = MetaData(naming_convention=NAMING)
