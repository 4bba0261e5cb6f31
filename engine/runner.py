"""What evaluates tokens: the torch path here, the native kernels behind the same protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch

from engine.memory.interface import StepView

if TYPE_CHECKING:
    from engine.models import Model

# In numpy: after the weights have passed through the caches, torch has to be fetched again.
Logits = npt.NDArray[np.float32]


class Runner(Protocol):
    """Evaluates consecutive tokens of one sequence against a placed memory view."""

    description: str

    def forward(
        self, token_ids: Sequence[int], first_position: int, view: StepView, *, wants_logits: bool
    ) -> Logits | None:
        """Return the logits (V,) of the last token, None where they are not wanted."""
        ...

    def forward_batch(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        view: StepView,
        logit_rows: Sequence[int],
    ) -> Logits:
        """Evaluate a placed batch; return the logits (B, V) of its rows logit_rows.

        token_ids, positions: (T,).
        """
        ...

    def forward_last(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        view: StepView,
        *,
        keep: Callable[[], None],
        num_sure: int = 0,
    ) -> Logits:
        """Evaluate one token of each sequence (B,); return the logits (B, V).

        keep: called before they are overwritten, if they ever are. num_sure: how many of the
        largest logits of a single token must be exact, 0 for all. The others may then be off by a
        third of what they differ from each other, but none comes out above those.
        """
        ...

    def close(self) -> None:
        """Give threads and memory back."""
        ...


class TorchRunner:
    """The oracle: the model as written in ``engine/models``, evaluated by torch."""

    def __init__(self, model: Model, description: str) -> None:
        self._model = model
        self.description = description

    def forward(
        self, token_ids: Sequence[int], first_position: int, view: StepView, *, wants_logits: bool
    ) -> Logits | None:
        """Return the logits (V,) of the last token, None where they are not wanted."""
        num_tokens = len(token_ids)
        positions = range(first_position, first_position + num_tokens)
        rows = [num_tokens - 1] if wants_logits else []
        logits = self.forward_batch(token_ids, positions, view, rows)
        return logits[0] if wants_logits else None

    @torch.inference_mode()
    def forward_batch(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        view: StepView,
        logit_rows: Sequence[int],
    ) -> Logits:
        """Evaluate a placed batch; return the logits (B, V) of its rows logit_rows."""
        ids, at, rows = (
            torch.tensor(list(numbers), dtype=torch.long)
            for numbers in (token_ids, positions, logit_rows)
        )
        logits: Logits = self._model(ids, at, view, rows).cpu().numpy()
        return logits

    def forward_last(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        view: StepView,
        *,
        keep: Callable[[], None],
        num_sure: int = 0,
    ) -> Logits:
        """Evaluate one token of each sequence (B,); return exact logits (B, V), which stay."""
        return self.forward_batch(token_ids, positions, view, range(len(token_ids)))

    def close(self) -> None:
        """Nothing is held that the garbage collector does not give back."""
