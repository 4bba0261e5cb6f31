"""What a benchmark measured: rows with our figure, the peer's, and how many times better we are."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure; ratio > 1 means better than the peer, whatever the unit."""

    name: str
    unit: str
    ours: float
    peer: float | None = None
    ratio: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the row as one flat object."""
        row = {k: v for k, v in asdict(self).items() if k != "extra"}
        return {**row, **self.extra}


def compare(
    name: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    *,
    smaller_is_better: bool = False,
    extra: Mapping[str, Any] | None = None,
) -> Row:
    """Return a row of medians; without peer samples there is no ratio."""
    own = median(ours)
    if not peer:
        return Row(name, unit, own, extra=extra or {})
    other = median(peer)
    ratio = other / own if smaller_is_better else own / other
    return Row(name, unit, own, other, ratio, extra or {})


@dataclass(frozen=True, slots=True)
class Report:
    """A benchmark's rows and what they were measured on."""

    bench: str
    model: str
    machine: Mapping[str, Any]
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the report as ``--json`` writes it."""
        return {
            "bench": self.bench,
            "model": self.model,
            "machine": dict(self.machine),
            "rows": [row.to_json() for row in self.rows],
        }

    def save(self, path: Path) -> None:
        """Write the report as JSON."""
        path.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    def to_text(self) -> str:
        """Return the report as a table for people."""
        lines = [f"{self.bench}: {self.model}", _describe(self.machine), ""]
        lines.append(f"{'row':<24}{'ours':>12}{'llama.cpp':>12}{'ratio':>9}  unit")
        for row in self.rows:
            peer = "-" if row.peer is None else _number(row.peer)
            ratio = "-" if row.ratio is None else f"{row.ratio:.2f} x"
            lines.append(f"{row.name:<24}{_number(row.ours):>12}{peer:>12}{ratio:>9}  {row.unit}")
            lines += [f"    {key}: {_figure(value)}" for key, value in row.extra.items()]
        return "\n".join(lines)


def cpu_name() -> str:
    """Return the processor's name as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _describe(machine: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in machine.items())


def _number(value: float) -> str:
    """Return a measured number: small ones keep the digits that say something."""
    return f"{value:,.1f}" if abs(value) >= 10 or value == 0 else f"{value:.3g}"


def _figure(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.2f}" if abs(value) >= 10 else f"{value:.4g}"
