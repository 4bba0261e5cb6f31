"""What evaluates tokens: the torch path here, the native kernels behind the same protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from engine.memory.interface import StepView

if TYPE_CHECKING:
    from torch import Tensor

    from engine.models import Model


class Runner(Protocol):
    """Evaluates consecutive tokens of one sequence against a placed memory view."""

    description: str

    def forward(
        self, token_ids: Sequence[int], first_position: int, view: StepView, *, wants_logits: bool
    ) -> Tensor | None:
        """Return the logits (V,) float32 of the last token, None where they are not wanted."""
        ...

    def close(self) -> None:
        """Give threads and memory back."""
        ...


class TorchRunner:
    """The oracle: the model as written in ``engine/models``, evaluated by torch."""

    def __init__(self, model: Model, device: torch.device, description: str) -> None:
        self._model = model
        self._device = device
        self.description = description

    @torch.inference_mode()
    def forward(
        self, token_ids: Sequence[int], first_position: int, view: StepView, *, wants_logits: bool
    ) -> Tensor | None:
        """Return the logits (V,) float32 of the last token, None where they are not wanted."""
        num_tokens = len(token_ids)
        ids = torch.tensor(token_ids, dtype=torch.long, device=self._device)
        positions = torch.arange(first_position, first_position + num_tokens, device=self._device)
        rows = torch.tensor([num_tokens - 1] if wants_logits else [], dtype=torch.long)
        logits: Tensor = self._model(ids, positions, view, rows.to(self._device))
        return logits[0] if wants_logits else None

    def close(self) -> None:
        """Nothing is held that the garbage collector does not give back."""
