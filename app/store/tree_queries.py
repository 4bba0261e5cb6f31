"""Queries about the messages of one conversation, inside a session of the caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.conversation import Message
from app.errors import NotFoundError
from app.store.base import now
from app.store.message_tree import MessageTree
from app.store.rows import MESSAGE_COLUMNS, message_of
from app.store.tables import ConversationRow, MessageRow

_M = MessageRow


def conversation_row(session: Session, conversation_id: str) -> ConversationRow:
    """Return a conversation's row. Raises: NotFoundError."""
    query = select(ConversationRow).where(ConversationRow.id == conversation_id)
    row = session.scalar(query)
    if row is None:
        raise NotFoundError("This conversation is no longer there.", detail=conversation_id)
    return row


def message_row(session: Session, message_id: str) -> MessageRow:
    """Return a message's row. Raises: NotFoundError."""
    row = session.scalar(select(_M).where(_M.id == message_id))
    if row is None:
        raise NotFoundError("This message is no longer there.", detail=message_id)
    return row


def load_tree(session: Session, conversation_id: str) -> MessageTree:
    """Return the links of all messages that are not deleted."""
    query = (
        select(_M.id, _M.parent_id)
        .where(_M.conversation_id == conversation_id, _M.deleted_at.is_(None))
        .order_by(_M.seq)
    )
    return MessageTree((row.id, row.parent_id) for row in session.execute(query))


def load_path(session: Session, conversation_id: str, leaf_id: str | None) -> list[Message]:
    """Return the messages from the first to leaf_id; empty when leaf_id is not in the tree."""
    tree = load_tree(session, conversation_id)
    return _load(session, conversation_id, tree, tree.path(leaf_id))


def load_messages(
    session: Session, conversation_id: str, ids: Collection[str] | None
) -> list[Message]:
    """Return messages in the order of writing; None asks for all that are not deleted."""
    tree = load_tree(session, conversation_id)
    return _load(session, conversation_id, tree, tree.ids() if ids is None else ids)


def load_message(session: Session, message_id: str) -> Message:
    """Return one message at its place among its siblings, deleted or not. Raises: NotFoundError."""
    columns = session.execute(select(*MESSAGE_COLUMNS).where(_M.id == message_id)).first()
    return _placed(session, message_id, columns)


def change_message(session: Session, message_id: str, changes: Mapping[str, Any]) -> Message:
    """Set columns of a message and return it. Raises: NotFoundError."""
    if not changes:
        return load_message(session, message_id)
    # Without the ORM's unit of work this takes half the time; it runs every second of a reply.
    statement = update(_M).where(_M.id == message_id).values(**changes)
    rows = session.execute(statement.returning(*MESSAGE_COLUMNS))
    return _placed(session, message_id, rows.first())


def remove_subtree(session: Session, row: MessageRow) -> None:
    """Mark a message and everything below it as deleted; move the leaf out of it."""
    conversation = conversation_row(session, row.conversation_id)
    tree = load_tree(session, row.conversation_id)
    if row.id not in tree:
        return
    row.leaf_before = conversation.leaf_id
    if row.id in tree.path(conversation.leaf_id):
        conversation.leaf_id = _leaf_without(tree, row)
    session.flush()
    below = select(_M.id).where(_M.id == row.id).cte("below", recursive=True)
    below = below.union_all(select(_M.id).where(_M.parent_id == below.c.id))
    session.execute(
        update(_M)
        .where(_M.id.in_(select(below.c.id)), _M.deleted_at.is_(None))
        .values(deleted_at=now(), deleted_root=row.id)
    )


def restore_subtree(session: Session, row: MessageRow) -> None:
    """Bring back what remove_subtree(row) hid, and the branch that was on screen."""
    conversation = conversation_row(session, row.conversation_id)
    leaf = row.leaf_before
    session.execute(
        update(_M).where(_M.deleted_root == row.id).values(deleted_at=None, deleted_root=None)
    )
    tree = load_tree(session, row.conversation_id)
    conversation.leaf_id = leaf if leaf in tree else tree.newest_leaf(row.id)


def _leaf_without(tree: MessageTree, row: MessageRow) -> str | None:
    siblings = tree.siblings(row.id)
    place = siblings.index(row.id)
    others = siblings[:place][-1:] or siblings[place + 1 :][:1]
    return tree.newest_leaf(others[0]) if others else row.parent_id


def _placed(session: Session, message_id: str, columns: Sequence[Any] | None) -> Message:
    if columns is None:
        raise NotFoundError("This message is no longer there.", detail=message_id)
    conversation_id, parent_id = columns[1], columns[2]
    parent = _M.parent_id.is_(None) if parent_id is None else _M.parent_id == parent_id
    query = select(_M.id).where(
        parent, _M.conversation_id == conversation_id, _M.deleted_at.is_(None)
    )
    ids = list(session.scalars(query.order_by(_M.seq)))
    version = ids.index(message_id) + 1 if message_id in ids else 1
    return message_of(columns, version=version, num_versions=max(1, len(ids)))


def _load(
    session: Session, conversation_id: str, tree: MessageTree, ids: Collection[str]
) -> list[Message]:
    wanted = set(ids)
    query = select(*MESSAGE_COLUMNS).where(
        _M.conversation_id == conversation_id, _M.deleted_at.is_(None)
    )
    if len(wanted) * 2 < len(tree):
        query = query.where(_M.id.in_(wanted))
    messages = []
    for row in session.execute(query.order_by(_M.seq)):
        if row[0] in wanted:
            place = tree.place(row[0])
            message = message_of(row, version=place.version, num_versions=place.num_versions)
            messages.append(message)
    return messages
