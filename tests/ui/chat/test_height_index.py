"""Sums of heights, against plain addition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ui.chat.height_index import HeightIndex

HEIGHTS = st.lists(st.integers(1, 500), min_size=1, max_size=40)


@given(HEIGHTS, st.integers(0, 30), st.data())
def test_rows_lie_where_sums_put_them(heights: list[int], gap: int, data: st.DataObject) -> None:
    index = HeightIndex(gap)
    index.reset([1] * len(heights))
    order = data.draw(st.permutations(range(len(heights))))
    for row in order:
        index.set_height(row, heights[row])
        index.row_at(10)

    for row in range(len(heights)):
        top = sum(heights[:row]) + gap * row
        assert index.top(row) == top
        assert index.row_at(top) == row
    assert index.total == sum(heights) + gap * (len(heights) - 1)


def test_places_outside_belong_to_the_nearest_row() -> None:
    index = HeightIndex(10)
    index.reset([20, 20])

    assert index.row_at(-5) == 0
    assert index.row_at(10_000) == 1
