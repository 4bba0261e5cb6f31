"""Running measurements of the engine: rates that turn tokens and bytes into seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rates:
    """What this machine does with this model; 0 before the first measurement."""

    prefill_tokens_per_second: float = 0.0
    decode_tokens_per_second: float = 0.0
    restore_tokens_per_second: float = 0.0


class RateMeter:
    """A rate that follows recent work: total amount over total time, old work fading out."""

    def __init__(self, *, half_life_seconds: float = 20.0) -> None:
        self._half_life_seconds = half_life_seconds
        self._amount = 0.0
        self._seconds = 0.0

    def add(self, amount: float, seconds: float) -> None:
        """Count work that took that many seconds."""
        fading = 0.5 ** (seconds / self._half_life_seconds)
        self._amount = self._amount * fading + amount
        self._seconds = self._seconds * fading + seconds

    @property
    def value(self) -> float:
        """Amount per second; 0 before any work."""
        return self._amount / self._seconds if self._seconds > 0 else 0.0
