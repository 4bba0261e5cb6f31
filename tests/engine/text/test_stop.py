"""Stop strings are found across pieces, and nothing else is swallowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.text.stop import StopMatcher

LETTERS = st.text("ab", max_size=12)


def run(stop: list[str], pieces: list[str]) -> tuple[str, bool]:
    matcher, shown = StopMatcher(stop), ""
    for piece in pieces:
        text, is_stopped = matcher.push(piece)
        shown += text
        if is_stopped:
            return shown, True
    return shown + matcher.flush(), False


def test_a_stop_string_across_three_pieces_is_found():
    assert run(["</end>"], ["text <", "/en", "d> more"]) == ("text ", True)


def test_what_may_begin_a_stop_string_is_held_back():
    matcher = StopMatcher(["User:"])
    assert matcher.push("so Us") == ("so ", False)
    assert matcher.push("ual") == ("Usual", False)
    assert matcher.push(" U") == (" ", False)
    assert matcher.flush() == "U"


def test_the_first_of_several_stop_strings_wins():
    assert run(["c", "bc"], ["abcd"]) == ("a", True)


def test_no_or_empty_stop_strings_pass_everything():
    assert run([], ["a", "b"]) == run([""], ["a", "b"]) == ("ab", False)


@given(stop=st.lists(LETTERS.filter(bool), max_size=3), pieces=st.lists(LETTERS, max_size=6))
def test_pieces_never_change_the_result(stop: list[str], pieces: list[str]):
    text = "".join(pieces)
    cuts = [text.find(s) for s in stop if s in text]
    shown, is_stopped = run(stop, pieces)
    assert is_stopped == bool(cuts)
    if not cuts:
        assert shown == text
    else:
        assert text.startswith(shown)
        assert not any(s in shown for s in stop)
