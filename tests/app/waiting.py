"""Waiting for another thread without sleeping longer than needed."""

from __future__ import annotations

import time
from collections.abc import Callable

# For what must only happen: other work on the machine may be heavy, and nothing is measured.
WAIT_S = 100.0


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return as soon as it is so; fail after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be so"
        time.sleep(0.005)
