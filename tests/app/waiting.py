"""Waiting for another thread without sleeping longer than needed."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 5.0


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return as soon as it is so; fail after five seconds."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be so"
        time.sleep(0.005)
