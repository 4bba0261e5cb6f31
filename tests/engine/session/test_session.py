"""The token log: matching, cutting, and its record on disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import ChatMessage
from engine.errors import SnapshotError
from engine.session.session import Session, message_digest


def session_of(*texts: str) -> Session:
    session = Session("c", "b")
    for text in texts:
        start = len(session.token_ids)
        session.append(list(text.encode()))
        session.close_span(message_digest(ChatMessage("user", text)), start, is_open=False)
    return session


def messages(*texts: str) -> list[ChatMessage]:
    return [ChatMessage("user", text) for text in texts]


def test_matching_stops_at_the_first_changed_message():
    session = session_of("one", "two", "three")
    assert session.num_matching(messages("one", "2", "three")) == 1
    assert session.num_matching(messages("one", "two")) == 2


def test_role_is_part_of_a_message():
    session = session_of("one")
    assert session.num_matching([ChatMessage("assistant", "one")]) == 0


def test_cutting_removes_tokens_and_spans_behind_a_border():
    session = session_of("one", "two")
    session.cut(1)
    assert session.token_ids == list(b"one")
    assert len(session.spans) == 1


def test_a_copy_shares_nothing_with_its_source():
    session = session_of("one", "two")
    copy = session.copy_as("other", 1)
    copy.append([1, 2])
    assert session.token_ids == list(b"onetwo")
    assert copy.token_ids == [*b"one", 1, 2]


def test_a_log_survives_its_record():
    session = session_of("one", "two")
    session.append([7, -1])
    read = Session.from_log("c", "b", session.to_log())
    assert read.token_ids == session.token_ids
    assert read.spans == session.spans


@given(st.data())
def test_a_damaged_record_is_refused_or_read_as_a_valid_log(data: st.DataObject):
    log = bytearray(session_of("one", "two").to_log())
    if data.draw(st.booleans(), label="truncate"):
        del log[data.draw(st.integers(0, len(log) - 1)) :]
    else:
        log[data.draw(st.integers(0, len(log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = Session.from_log("c", "b", bytes(log))
    except SnapshotError:
        return
    assert all(span.end <= len(read.token_ids) for span in read.spans)


def test_a_log_of_another_version_is_refused():
    log = session_of("one").to_log().replace(b'"version": 1', b'"version": 9')
    with pytest.raises(SnapshotError):
        Session.from_log("c", "b", log)
