"""A child process that runs one engine and answers requests, one JSON line each way."""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType
from typing import Any, Literal

Role = Literal["ours", "peer"]
Answer = dict[str, Any]


class BenchProcess:
    """One engine in a process of its own.

    Usage: ``with BenchProcess("ours") as ours: ours.ask("read", token_ids=[...])``.
    Raises: RuntimeError with the child's last words when it dies.
    """

    def __init__(self, role: Role) -> None:
        self.role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"app.bench.{role}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, operation: str, **arguments: object) -> Answer:
        """Send one request and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps({"operation": operation, "arguments": arguments})
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the {self.role} process ended during {operation}")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{self.role}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the child and wait for it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> BenchProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
