"""What we rely on in the binding itself."""

from __future__ import annotations

import sys

from PySide6.QtCore import QTimer


def test_calls_that_return_nothing_do_not_use_up_references_to_none(qapp) -> None:
    timer = QTimer()
    before = sys.getrefcount(None)
    for _ in range(1000):
        timer.setInterval(5)
    # PySide6 6.12 on Python 3.11 drops one per call, and the process dies after a few thousand.
    assert abs(sys.getrefcount(None) - before) < 500
