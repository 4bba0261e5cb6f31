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
    """One llama.cpp server, slots and threads as asked, its defaults otherwise."""

    def __init__(self) -> None:
        self._server: Any = None

    def load(
        self,
        *,
        model: str,
        threads: int,
        context_length: int,
        state_dir: str = "",
        slots: int = 1,
    ) -> Mapping[str, Any]:
        """Load a model and draw one token; state_dir is where saved states go, "" is nowhere.

        Several slots share one pool of context_length tokens, and in it what they have in common.
        """
        started = time.perf_counter()
        params = xllamacpp.CommonParams()
        params.model.path = model
        params.n_ctx = context_length
        params.n_parallel = slots
        params.kv_unified = slots > 1
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

    def complete(self, *, token_ids: list[int], n: int, num_tokens: int) -> Mapping[str, Any]:
        """Draw n completions of num_tokens each, all slots at once, behind a cached prompt."""
        request = {
            "prompt": token_ids,
            "n_predict": num_tokens,
            "n_cmpl": n,
            "seed": 1,
            "cache_prompt": True,
            "ignore_eos": True,
        }
        started = time.perf_counter()
        answer = _parsed(self._server.handle_completions(request))
        seconds = time.perf_counter() - started
        # The timings are those of the first completion; all have the same length.
        choices, timings = answer.get("choices", [answer]), answer["timings"]
        return {
            "seconds": seconds,
            "num_tokens": len(choices) * timings["predicted_n"],
            "read_tokens": timings["prompt_n"],
        }

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
        answer = _parsed(self._server.handle_completions(request))
        timings: dict[str, float] = answer["timings"]
        return timings


def _parsed(answer: Any) -> Any:
    """Return the server's answer as objects; some versions give text."""
    return json.loads(answer) if isinstance(answer, str | bytes) else answer


def main() -> None:
    """Answer bench requests until standard input ends."""
    peer = Peer()
    names = ("load", "read", "decode", "complete", "save", "resume", "memory", "machine")
    answer_requests({name: getattr(peer, name) for name in names})


if __name__ == "__main__":
    main()
