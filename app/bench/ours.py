"""Reprise's own engine behind the bench protocol."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from app.bench.answering import Operation, answer_requests, resident_mb
from app.bench.report import cpu_name
from engine.clone_scoring import CloneScoring
from engine.config import ChatMessage, EngineConfig, GenerateRequest, KVCodec, SamplingParams
from engine.engine import Engine
from engine.events import Finished, TextDelta
from engine.memory.interface import SequenceId
from engine.scoring import score_codec

if TYPE_CHECKING:
    from app.store.kv_store import KVStore

_GREEDY = SamplingParams(temperature=0.0)
# The conversation that is written again and again.
_WRITTEN = "written"


class Ours:
    """One engine; token-level calls go below the chat template, turns go through it."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._store: KVStore | None = None
        self._prompt: tuple[list[int], SequenceId] | None = None

    def load(
        self,
        *,
        model: str,
        threads: int,
        context_length: int,
        kv_codec: str = "f16",
        kernels: bool = True,
        home: str = "",
        block_size: int | None = None,
        hot_budget_bytes: int | None = None,
        warm_budget_bytes: int | None = None,
    ) -> Mapping[str, Any]:
        """Load a model and draw one token; home is where kv.db lies, "" keeps nothing."""
        started = time.perf_counter()
        config = EngineConfig(
            context_length=context_length,
            kv_codec=KVCodec(kv_codec),
            num_threads=threads,
            kernels=kernels,
            block_size=block_size,
            hot_budget_bytes=hot_budget_bytes,
            warm_budget_bytes=warm_budget_bytes,
        )
        if home:
            self._store = _open_store(Path(home) / "kv.db")
        self._engine = Engine.load(Path(model), config, store=self._store)
        probe = self._engine.probe()
        probe.release(probe.read([1]))
        return {"load_ms": (time.perf_counter() - started) * 1000.0}

    def read(self, *, token_ids: list[int]) -> Mapping[str, Any]:
        """Read a prompt from nothing."""
        probe = self._loaded.probe()
        probe.clear()
        self._prompt = None
        started = time.perf_counter()
        sequence = probe.read(token_ids)
        elapsed = time.perf_counter() - started
        probe.release(sequence)
        return {"ms": elapsed * 1000.0}

    def decode(
        self, *, token_ids: list[int], num_tokens: int, num_sure: int = 1
    ) -> Mapping[str, Any]:
        """Generate greedily behind a prompt that is read once.

        num_sure: how many of the largest logits must be exact, as for top_k; 0 for all.
        """
        probe = self._loaded.probe()
        if self._prompt is None or self._prompt[0] != token_ids:
            self._prompt = (token_ids, probe.read(token_ids))
        sequence, depth = self._prompt[1], len(token_ids)
        seconds = probe.decode(sequence, depth, num_tokens, num_sure=num_sure)
        return {"tokens_per_second": num_tokens / seconds}

    def decode_writing(
        self, *, token_ids: list[int], max_tokens: int, is_written: bool
    ) -> Mapping[str, Any]:
        """Generate behind a prompt for as long as its state is being written to kv.db.

        The speed includes what this thread does for the writing before it begins. is_written: or
        generate in the same way while nothing is.
        """
        assert self._store is not None
        probe, store = self._loaded.probe(), self._store
        self.decode(token_ids=token_ids, num_tokens=2)
        assert self._prompt is not None
        sequence = self._prompt[1]
        store.forget(_WRITTEN)
        store.flush(60.0)
        before, started = store.bytes_written, time.perf_counter()
        if is_written:
            job = self._loaded.memory.snapshot(sequence, _WRITTEN, "main", b"")
            assert job is not None
            store.submit(job)
        queue_ms = (time.perf_counter() - started) * 1000.0
        num_tokens = 0
        while num_tokens < max_tokens and (num_tokens == 0 or store.pending or not is_written):
            probe.decode(sequence, len(token_ids) + num_tokens, 1)
            num_tokens += 1
        seconds = time.perf_counter() - started
        store.flush(60.0)
        return {
            "tokens_per_second": num_tokens / seconds,
            "num_tokens": num_tokens,
            "queue_ms": queue_ms,
            "write_seconds": time.perf_counter() - started,
            "bytes": store.bytes_written - before,
        }

    def written(self, *, conversation: str) -> Mapping[str, Any]:
        """Return the bytes of blocks written so far, and what a conversation's manifest holds.

        body_bytes: of its tail, its log and its tokens, beside the blocks.
        """
        assert self._store is not None
        self._store.flush(60.0)
        found, fingerprint = self._loaded.breakdown(), self._loaded.info.fingerprint
        (manifest,) = self._store.read_manifests(bytes.fromhex(fingerprint), conversation)
        return {
            "bytes": self._store.bytes_written,
            "tokens": manifest.num_tokens,
            "body_bytes": len(manifest.body),
            "block_size": found.block_size,
            "block_bytes": found.bytes_per_token * found.block_size,
        }

    def block_costs(
        self, *, token_ids: list[int], num_tokens: int, num_forks: int
    ) -> Mapping[str, Any]:
        """Return what forks of a prompt cost, and what blocks cost while it is continued."""
        probe = self._loaded.probe()
        sequence = probe.read(token_ids)
        probe.decode_cost(sequence, len(token_ids), 2)
        forks = [probe.fork_cost(sequence, len(token_ids)) for _ in range(num_forks)]
        decoded = probe.decode_cost(sequence, len(token_ids), num_tokens)
        probe.release(sequence)
        return {
            "fork_ms": median(fork.seconds for fork in forks) * 1000.0,
            "fork_blocks": max(fork.num_blocks for fork in forks),
            "step_ms": decoded.seconds / num_tokens * 1000.0,
            "bookkeeping_ms": decoded.bookkeeping_seconds / num_tokens * 1000.0,
        }

    def turn(
        self,
        *,
        conversation: str,
        messages: list[tuple[str, str]],
        max_tokens: int,
        ephemeral: bool = False,
    ) -> Mapping[str, Any]:
        """Answer the last message greedily; return the reply's accounting and text."""
        request = GenerateRequest(
            conversation,
            tuple(ChatMessage(role, content) for role, content in messages),
            sampling=_GREEDY,
            max_tokens=max_tokens,
            ephemeral=ephemeral,
        )
        before = self._store.bytes_read if self._store else 0
        text, finished = "", None
        for event in self._loaded.generate(request):
            text += getattr(event, "text", "")
            finished = event if isinstance(event, Finished) else finished
        assert finished is not None
        usage, timing = finished.usage, finished.timing
        return {
            "text": text,
            "token_ids": finished.token_ids,
            "prompt_tokens": usage.prompt_tokens,
            "reused_tokens": usage.reused.total,
            "recomputed_tokens": usage.recomputed_tokens,
            "restored_bytes": self._store.bytes_read - before if self._store else 0,
            **asdict(timing),
        }

    def complete(
        self, *, conversation: str, messages: list[tuple[str, str]], n: int, num_tokens: int
    ) -> Mapping[str, Any]:
        """Draw n replies of num_tokens each, together, behind a conversation that was read before.

        Returns the seconds, the tokens drawn, and the most bytes that were held on the way.
        """
        request = GenerateRequest(
            conversation,
            tuple(ChatMessage(role, content) for role, content in messages),
            sampling=SamplingParams(seed=1),
            max_tokens=num_tokens,
            ephemeral=True,
            ignore_eos=True,
        )
        finished: list[Finished] = []
        most_bytes, started = 0, time.perf_counter()
        for one in self._loaded.generate_batch(request, n):
            event = one.event
            if isinstance(event, TextDelta) and event.num_tokens == num_tokens:
                most_bytes = max(most_bytes, self._loaded.breakdown().held_bytes)
            if isinstance(event, Finished):
                finished.append(event)
        seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "num_tokens": sum(len(event.token_ids) for event in finished),
            "read_tokens": sum(event.usage.recomputed_tokens for event in finished),
            "held_bytes": most_bytes,
        }

    def prompt_tokens(self, *, messages: list[tuple[str, str]]) -> Mapping[str, Any]:
        """Return the token ids of a conversation as the model reads it."""
        chat = tuple(ChatMessage(role, content) for role, content in messages)
        return {"token_ids": self._loaded.prompt_token_ids(chat)}

    def flush(self) -> Mapping[str, Any]:
        """Wait until everything queued is in kv.db; return its size."""
        assert self._store is not None
        self._store.flush(60.0)
        return {"bytes": self._store.used_bytes()}

    def quit(self) -> Mapping[str, Any]:
        """Save and close as the program does at its end; nothing can be asked afterwards."""
        assert self._store is not None
        started = time.perf_counter()
        self._loaded.unload()
        is_done = self._store.close()
        ms = (time.perf_counter() - started) * 1000.0
        return {"ms": ms, "is_done": is_done, "bytes": self._store.used_bytes()}

    def memory(self) -> Mapping[str, Any]:
        """Return the resident memory, and what the conversations hold of it."""
        tiers = self._loaded.breakdown().tiers
        held = sum(tier.used_bytes for tier in tiers if tier.name != "cold")
        return {"resident_mb": resident_mb(), "bytes": held}

    def forget(self, *, conversation: str) -> Mapping[str, Any]:
        """Drop a conversation's state everywhere."""
        self._loaded.forget(conversation)
        return {}

    def bring_back(self, *, conversation: str) -> Mapping[str, Any]:
        """Make a conversation resident, as the application does in idle time."""
        return {"restored_tokens": self._loaded.restore(conversation).total}

    def rest(self, *, conversation: str) -> Mapping[str, Any]:
        """Put a conversation to rest, as happens to one that another takes over from."""
        self._loaded.rest(conversation)
        return {}

    def accuracy(self, *, text: str, num_tokens: int, chunk: int) -> Mapping[str, Any]:
        """Score the model's K/V format on a text, against f16."""
        engine = self._loaded
        token_ids = engine.token_ids(text)[:num_tokens]
        codec = KVCodec(engine.info.kv_codec)
        score = score_codec(engine, codec, token_ids, chunk=chunk)
        return {**asdict(score), "nll_change": score.nll_change}

    def clones(
        self, *, token_ids: list[int], next_ids: list[int], decays: list[float], num_drawn: int
    ) -> Mapping[str, Any]:
        """Score copies of a conversation that keep some parts, by decay."""
        scoring = CloneScoring(self._loaded, token_ids, next_ids, num_drawn=num_drawn)
        scores = [asdict(scoring.score(decay)) for decay in decays]
        scoring.close()
        return {"scores": scores}

    def close(self) -> None:
        """Unload the model and close the store."""
        self._loaded.unload()
        if self._store is not None:
            self._store.close()

    def machine(self) -> Mapping[str, Any]:
        """Return what this runs on."""
        info = self._loaded.info
        return {
            "cpu": cpu_name(),
            "threads": info.num_threads,
            "isa": info.compute,
            "torch": torch.__version__,
        }

    def operations(self) -> dict[str, Operation]:
        """Return what can be asked for, by name."""
        known: tuple[Operation, ...] = (
            self.load,
            self.read,
            self.decode,
            self.decode_writing,
            self.written,
            self.block_costs,
            self.turn,
            self.complete,
            self.prompt_tokens,
            self.flush,
            self.quit,
            self.memory,
            self.bring_back,
            self.rest,
            self.forget,
            self.accuracy,
            self.clones,
            self.machine,
        )
        return {operation.__name__: operation for operation in known}

    @property
    def _loaded(self) -> Engine:
        assert self._engine is not None, "load comes first"
        return self._engine


def _open_store(path: Path) -> KVStore:
    """Import the database only here: the engine that is measured needs no room for it."""
    from app.store.kv_store import KVStore

    return KVStore(path, budget_bytes=8 << 30)


def main() -> None:
    """Answer bench requests until standard input ends."""
    answer_requests(Ours().operations())


if __name__ == "__main__":
    main()
