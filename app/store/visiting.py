"""Which conversation is opened when: the statistics that prefetching lives on."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.store.base import now
from app.store.tables import ConversationRow, VisitRow

# Older visits say little about tomorrow.
_KEPT_VISITS = 5_000
_STUDIED_VISITS = 1_000

# A conversation that followed this one before is worth several that were merely opened.
_SUCCESSOR_WEIGHT = 4.0


def record(session: Session, conversation_id: str) -> None:
    """Add a visit unless it repeats the last one; forget the oldest."""
    last = session.execute(
        select(VisitRow.seq, VisitRow.conversation_id).order_by(VisitRow.seq.desc()).limit(1)
    ).first()
    if last is not None and last.conversation_id == conversation_id:
        return
    session.add(VisitRow(conversation_id=conversation_id, opened_at=now()))
    if last is not None and last.seq % 100 == 0:
        session.execute(delete(VisitRow).where(VisitRow.seq < last.seq - _KEPT_VISITS))


def likely_next(session: Session, conversation_id: str | None, *, limit: int) -> list[str]:
    """Return conversations by the chance of being opened next, best first.

    Counts what followed conversation_id, and how often and how lately anything was opened.
    """
    visits = list(
        session.scalars(
            select(VisitRow.conversation_id)
            .join(ConversationRow, ConversationRow.id == VisitRow.conversation_id)
            .where(ConversationRow.deleted_at.is_(None))
            .order_by(VisitRow.seq.desc())
            .limit(_STUDIED_VISITS)
        )
    )
    scores: defaultdict[str, float] = defaultdict(float)
    for age, visited in enumerate(visits):
        weight = 1.0 / (1.0 + age / 20.0)
        scores[visited] += weight
        if age and visits[age] == conversation_id:
            scores[visits[age - 1]] += _SUCCESSOR_WEIGHT * weight
    scores.pop(conversation_id or "", None)
    return sorted(scores, key=scores.__getitem__, reverse=True)[:limit]
