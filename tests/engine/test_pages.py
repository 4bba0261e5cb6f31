"""Memory that is provided ahead is there when it is asked for."""

from __future__ import annotations

import mmap
import platform
import subprocess
import sys

import pytest

# In a process of its own, whose allocator nobody has used much. 7 of 8 MiB: the rest may be taken.
MEASURE = """
import ctypes, resource, sys
from engine.pages import provide_heap
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages: one fault would bring many
if sys.argv[1] == "provided":
    provide_heap(8 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
held = b"x" * (3 << 20), b"x" * (4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators keep nothing")
def test_the_heap_has_what_was_provided_to_give_out():
    provided, fresh = (num_page_faults(how) for how in ("provided", "fresh"))
    assert fresh >= (6 << 20) // mmap.PAGESIZE
    assert provided < fresh // 10


def num_page_faults(how: str) -> int:
    run = [sys.executable, "-c", MEASURE, how]
    return int(subprocess.run(run, capture_output=True, check=True, text=True).stdout)
