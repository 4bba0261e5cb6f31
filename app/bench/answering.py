"""The child's side of a bench process: read requests, call the engine's methods, answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Operation = Callable[..., Mapping[str, Any]]


def answer_requests(operations: Mapping[str, Operation]) -> None:
    """Answer JSON lines on standard input until it ends.

    The real standard output is taken away first: libraries that print cannot break the protocol.
    """
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _answer(operations, request)
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _answer(operations: Mapping[str, Operation], request: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return operations[request["operation"]](**request["arguments"])
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def resident_mb() -> float:
    """Return the resident memory of this process in MiB."""
    with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024.0
    return 0.0
