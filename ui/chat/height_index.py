"""Where each row of a tall column lies: heights, and the sums of them. Knows no widget."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class HeightIndex:
    """Heights of rows with an equal gap between them; sums are made when they are asked for."""

    def __init__(self, gap: int) -> None:
        self.gap = gap
        self._heights: list[int] = []
        self._tops: list[int] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._heights)

    def reset(self, heights: Iterable[int], first: int = 0) -> None:
        """Replace the heights from row first on."""
        self._heights[first:] = heights
        self._tops = None

    def height(self, row: int) -> int:
        """Return the height of a row."""
        return self._heights[row]

    def set_height(self, row: int, height: int) -> bool:
        """Change a height; tell whether it was another one."""
        change = height - self._heights[row]
        if not change:
            return False
        self._heights[row] = height
        if row == len(self._heights) - 1 and self._tops is not None:
            # The growing reply is the last row; nothing lies below it.
            self._tops[-1] += change
        else:
            self._tops = None
        return True

    def top(self, row: int) -> int:
        """Return the upper edge of a row."""
        return self._sums()[row]

    @property
    def total(self) -> int:
        """The height of all rows."""
        return max(0, self._sums()[-1] - self.gap)

    def row_at(self, y: int) -> int:
        """Return the row at a height; the nearest one outside the column."""
        return max(0, min(bisect_right(self._sums(), y) - 1, len(self._heights) - 1))

    def _sums(self) -> list[int]:
        if self._tops is None:
            steps = (height + self.gap for height in self._heights)
            self._tops = list(accumulate(steps, initial=0))
        return self._tops
