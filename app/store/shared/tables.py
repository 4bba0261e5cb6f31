"""What a shared store holds beside the tables of kv.db: its identity and the conversations' text.

All lies in a schema of its own, named after the version of the tables, so that older and newer
programs can use one database side by side.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, LargeBinary, MetaData, Table, Text

from app.store.kv_tables import VERSION

SCHEMA = f"reprise_{VERSION}"
CHANNEL = SCHEMA

metadata = MetaData()

# id: drawn when the schema is made; what was replicated elsewhere does not count here.
server = Table("server", metadata, Column("id", Text, primary_key=True))

# document: JSON as app/export.py writes it, without messages. version: counts changes of any part.
conversations = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("title", Text, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

messages = Table(
    "messages",
    metadata,
    Column("conversation_id", ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    Column("id", Text, primary_key=True),
    Column("document", LargeBinary, nullable=False),
)
