"""Which number type torch multiplies fastest in on this machine: measured once, then remembered."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn import functional as F

from engine.quant.linear import Compute

CACHE_NAME = "compute.json"
_PREFILL = (128, 1024, 1024)
# Larger than any cache: decoding streams weights from memory.
_DECODE = (1, 32768, 1024)
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of one matrix product in float32 and in bfloat16."""

    float32_ms: float
    bfloat16_ms: float

    @property
    def faster(self) -> torch.dtype:
        """The faster type; float32 unless bfloat16 gains a tenth."""
        is_worth_it = self.bfloat16_ms < 0.9 * self.float32_ms
        return torch.bfloat16 if is_worth_it else torch.float32


def choose_compute(requested: str, device: str, cache_dir: Path | None = None) -> Compute:
    """Decide what the torch path computes with.

    requested: "auto" | "float32" | "bfloat16". cache_dir: where a measurement is kept; None
    measures again (0.1 to 0.3 s).
    Raises: ValueError for another word.
    """
    target = torch.device(device)
    if requested in ("float32", "bfloat16"):
        dtype = torch.float32 if requested == "float32" else torch.bfloat16
        return Compute(dtype, dtype, target)
    if requested != "auto":
        raise ValueError(f"unknown compute type {requested!r}")
    if target.type != "cpu":
        return Compute(torch.bfloat16, torch.bfloat16, target)
    prefill, decode = _cached_timings(cache_dir)
    return Compute(prefill.faster, decode.faster, target)


def fit_compute(compute: Compute, num_weights: int, free_bytes: int) -> Compute:
    """Adapt a choice to the memory there is: half-size weights, or none held at all.

    num_weights: of the whole model. free_bytes: of the device; a fifth is left for everything else.
    """
    budget = 0.8 * free_bytes
    if num_weights * compute.dtype.itemsize <= budget:
        return compute
    if num_weights * torch.bfloat16.itemsize <= budget:
        return replace(compute, dtype=torch.bfloat16, head_dtype=torch.bfloat16)
    return replace(compute, keeps_weights=False)


def measure() -> tuple[Timing, Timing]:
    """Time a prefill-like and a decode-like product on the CPU."""
    return _time_product(*_PREFILL), _time_product(*_DECODE)


def _cached_timings(cache_dir: Path | None) -> tuple[Timing, Timing]:
    if cache_dir is None:
        return measure()
    path = cache_dir / CACHE_NAME
    stored = _read(path)
    if stored is not None:
        return stored
    timings = measure()
    _write(path, timings)
    return timings


def _machine() -> str:
    """Name what a measurement depends on."""
    parts = (
        platform.processor() or platform.machine(),
        torch.backends.cpu.get_cpu_capability(),
        str(torch.get_num_threads()),
        torch.__version__,
    )
    return " ".join(parts)


def _read(path: Path) -> tuple[Timing, Timing] | None:
    """Return the stored measurement of this machine, None when there is none that can be read."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))[_machine()]
        prefill, decode = (Timing(float(a), float(b)) for a, b in stored)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return prefill, decode


def _write(path: Path, timings: tuple[Timing, Timing]) -> None:
    rows = [(round(t.float32_ms, 3), round(t.bfloat16_ms, 3)) for t in timings]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({_machine(): rows}), encoding="utf-8")


def _time_product(rows: int, out_features: int, in_features: int) -> Timing:
    """Time both types in turn, so that a busy moment of the machine hits both."""
    x, weight = torch.randn(rows, in_features), torch.full((out_features, in_features), 0.5)
    x16, weight16 = x.bfloat16(), weight.bfloat16()
    full, half = float("inf"), float("inf")
    for _ in range(_REPEATS):
        full = min(full, _milliseconds(lambda: F.linear(x, weight)))
        half = min(half, _milliseconds(lambda: F.linear(x16, weight16)))
    return Timing(full, half)


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3
