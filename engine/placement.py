"""Which device computes which layer: the CPU the first ones, an accelerator the last ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Placement:
    """The devices of a model.

    layers: one per layer; a layer's keys and values lie where it is computed. What comes after the
    last layer is computed where that one is.
    """

    layers: tuple[torch.device, ...]

    @classmethod
    def of(
        cls, num_layers: int, device: torch.device, *, num_offloaded: int | None = None
    ) -> Placement:
        """Put the last num_offloaded layers on a device, all of them for None."""
        count = num_layers if num_offloaded is None else num_offloaded
        return cls((CPU,) * (num_layers - count) + (device,) * count)

    @property
    def first(self) -> torch.device:
        """Return where the first layer is."""
        return self.layers[0]

    @property
    def last(self) -> torch.device:
        """Return where the last layer is, and with it the output head."""
        return self.layers[-1]

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """Return every device once, in the order of the layers."""
        return tuple(dict.fromkeys(self.layers))

    @property
    def is_on_cpu(self) -> bool:
        """True when no layer lies elsewhere."""
        return self.devices == (CPU,)

    def runs(self, layers: Sequence[int]) -> list[tuple[torch.device, tuple[int, ...]]]:
        """Cut ascending layers into those of each device."""
        runs: dict[torch.device, list[int]] = {}
        for layer in layers:
            runs.setdefault(self.layers[layer], []).append(layer)
        return [(device, tuple(found)) for device, found in runs.items()]
