"""llama.cpp, by the ``xllamacpp`` wheel, behind the bench protocol."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xllamacpp

from app.bench.answering import answer_requests, resident_mb


class Peer:
    """One llama.cpp server with a single slot, threads as asked, its defaults otherwise."""

    def __init__(self) -> None:
        self._server: Any = None

    def load(
        self, *, model: str, threads: int, context_length: int, state_dir: str = ""
    ) -> Mapping[str, Any]:
        """Load a model and draw one token; state_dir is where saved states go, "" is nowhere."""
        started = time.perf_counter()
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.n_ctx = context_length
        params.n_parallel = 1
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        if state_dir:
            params.slot_save_path = state_dir + "/"
        self._server = xllamacpp.Server(params)
        self._complete([1], num_tokens=1, reuse=False)
        return {"load_ms": (time.perf_counter() - started) * 1000.0}

    def read(self, *, token_ids: list[int]) -> Mapping[str, Any]:
        """Read a prompt from nothing."""
        timings = self._complete(token_ids, num_tokens=1, reuse=False)
        return {"ms": timings["prompt_ms"]}

    def decode(self, *, token_ids: list[int], num_tokens: int) -> Mapping[str, Any]:
        """Generate greedily behind a prompt; the prompt may come from the cache."""
        timings = self._complete(token_ids, num_tokens=num_tokens, reuse=True)
        return {"tokens_per_second": timings["predicted_per_second"]}

    def save(self, *, token_ids: list[int], name: str, state_dir: str) -> Mapping[str, Any]:
        """Read a prompt and write its state to a file."""
        self._complete(token_ids, num_tokens=1, reuse=True)
        self._slot("save", name)
        return {"bytes": (Path(state_dir) / name).stat().st_size}

    def resume(self, *, token_ids: list[int], name: str) -> Mapping[str, Any]:
        """Bring a saved state back and draw the next token of the prompt."""
        started = time.perf_counter()
        self._slot("restore", name)
        timings = self._complete(token_ids, num_tokens=1, reuse=True)
        elapsed = time.perf_counter() - started
        return {"ms": elapsed * 1000.0, "reused_tokens": timings["cache_n"]}

    def memory(self) -> Mapping[str, Any]:
        """Return the resident memory."""
        return {"resident_mb": resident_mb()}

    def machine(self) -> Mapping[str, Any]:
        """Return what llama.cpp says of itself."""
        return {"version": xllamacpp.__version__, "isa": xllamacpp.get_system_info()}

    def _slot(self, action: str, name: str) -> None:
        """Ask the server's own address on this machine; the wheel has no call for slots."""
        request = urllib.request.Request(
            f"{self._server.listening_address}/slots/0?action={action}",
            data=json.dumps({"filename": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            response.read()

    def _complete(self, token_ids: list[int], *, num_tokens: int, reuse: bool) -> dict[str, float]:
        request = {
            "prompt": token_ids,
            "n_predict": num_tokens,
            "temperature": 0,
            "cache_prompt": reuse,
            "ignore_eos": True,
        }
        answer = self._server.handle_completions(request)
        answer = json.loads(answer) if isinstance(answer, str | bytes) else answer
        timings: dict[str, float] = answer["timings"]
        return timings


def main() -> None:
    """Answer bench requests until standard input ends."""
    peer = Peer()
    names = ("load", "read", "decode", "save", "resume", "memory", "machine")
    answer_requests({name: getattr(peer, name) for name in names})


if __name__ == "__main__":
    main()
