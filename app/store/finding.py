"""The full-text search of chats.db. What a text means is app/search.py's."""

from __future__ import annotations

from sqlalchemy import ColumnElement, func, select, text
from sqlalchemy.orm import Session

from app.conversation import SearchHit
from app.search import Query, like, snippet
from app.store.tables import ConversationRow, MessageRow

_C, _M = ConversationRow, MessageRow


def search(session: Session, query: Query, *, limit: int) -> list[SearchHit]:
    """Return at most limit conversations: those whose title fits, then those whose text does."""
    hits = _titles(session, query, limit=limit)
    known = {hit.conversation_id for hit in hits}
    hits += [hit for hit in _texts(session, query, limit=limit) if hit.conversation_id not in known]
    return hits[:limit]


def _titles(session: Session, query: Query, *, limit: int) -> list[SearchHit]:
    fits = [_C.title.like(like(word), escape="\\") for word in query.words]
    statement = (
        select(_C.id, _C.title)
        .where(_C.deleted_at.is_(None), *fits)
        .order_by(_C.updated_at.desc())
        .limit(limit)
    )
    rows = session.execute(statement)
    return [SearchHit(row.id, None, snippet(row.title, query.words)) for row in rows]


def _texts(session: Session, query: Query, *, limit: int) -> list[SearchHit]:
    """Return the newest fitting message of each conversation."""
    newest = (
        select(func.max(_M.seq).label("seq"))
        .join(_C, _C.id == _M.conversation_id)
        .where(_M.deleted_at.is_(None), _C.deleted_at.is_(None), *_fits(query))
        .group_by(_M.conversation_id)
        .order_by(text("seq DESC"))
        .limit(limit)
    )
    statement = (
        select(_M.conversation_id, _M.id, _M.content)
        .where(_M.seq.in_(newest))
        .order_by(_M.seq.desc())
    )
    rows = session.execute(statement)
    return [SearchHit(row[0], row[1], snippet(row[2], query.words)) for row in rows]


def _fits(query: Query) -> list[ColumnElement[bool]]:
    fits: list[ColumnElement[bool]] = [
        _M.content.like(pattern, escape="\\") for pattern in query.likes
    ]
    if query.match:
        found = text(
            "messages.seq IN (SELECT rowid FROM messages_fts WHERE messages_fts MATCH :match)"
        )
        fits.append(found.bindparams(match=query.match))  # type: ignore[arg-type]
    return fits
