from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ui.formats import ago_text, percent_text, seconds_text, size_text, speed_text

NOW = datetime(2026, 3, 5, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (22_528, "22 KB"),
        (412 << 20, "412 MB"),
        (1_782_579, "1.7 MB"),
        (10 << 30, "10.0 GB"),
    ],
)
def test_sizes_have_units(num_bytes: int, text: str) -> None:
    assert size_text(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "instant"), (0.1, "0.1 s"), (38.2, "38 s"), (240, "4 min"), (7200, "2 h")],
)
def test_waits_are_short(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(minutes=3), "3 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(hours=30), "yesterday"),
    ],
)
def test_ages_are_in_words(age: timedelta, text: str) -> None:
    assert ago_text(NOW - age, NOW) == text


def test_unknown_speed_is_a_dash() -> None:
    assert speed_text(None) == "–"
    assert speed_text(41.27) == "41.3 tokens/s"
    assert percent_text(0.94) == "94 %"
