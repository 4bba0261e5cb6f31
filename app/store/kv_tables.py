"""The tables of kv.db, which a shared store has too. Large values lie in tables of their own.

SQLite rewrites a whole row when one of its columns changes; counting a hit must not rewrite a
megabyte of keys and values.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

# Raised when the tables or the meaning of a column change; older files are dropped.
VERSION = 1

metadata = MetaData()

blocks = Table(
    "blocks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("parent", LargeBinary, nullable=False),
    Column("token_ids", LargeBinary, nullable=False),
    Column("codec", Text, nullable=False),
    Column("crc32", BigInteger, nullable=False),
    Column("binding", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("hits", Integer, nullable=False, server_default="0"),
    Column("last_use", BigInteger, nullable=False),
    UniqueConstraint("fingerprint", "hash"),
)

payloads = Table(
    "payloads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("payload", LargeBinary, nullable=False),
)

manifests = Table(
    "manifests",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("conversation_id", Text, nullable=False),
    Column("branch", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("num_tokens", Integer, nullable=False),
    Column("num_blocks", Integer, nullable=False),
    Column("hashes", LargeBinary, nullable=False),
    Column("body_size", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("hits", Integer, nullable=False, server_default="0"),
    Column("last_use", BigInteger, nullable=False),
    UniqueConstraint("conversation_id", "branch", "fingerprint"),
)

bodies = Table(
    "bodies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

manifest_blocks = Table(
    "manifest_blocks",
    metadata,
    Column("manifest_id", ForeignKey("manifests.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("block_id", ForeignKey("blocks.id", ondelete="CASCADE"), nullable=False),
    Index("ix_manifest_blocks_block_id", "block_id"),
    sqlite_with_rowid=False,
)

# What kv.db knows of its replica on a server. A file without these tables is not an older one.
notes = MetaData()

# A manifest is replicated while updated_at is still its own. remote: its version on the server.
replicas = Table(
    "replicas",
    notes,
    Column("manifest_id", Integer, primary_key=True),
    Column("server", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("remote", BigInteger, nullable=False),
)

# digest: of a conversation's text as it was last sent or taken over; remote: its version then.
texts = Table(
    "texts",
    notes,
    Column("conversation_id", Text, primary_key=True),
    Column("server", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("remote", BigInteger, nullable=False),
)
