"""Matrix products with the weights of a GGUF file: the seam between file, torch and kernels.

A module keeps the mapped bytes (what native kernels read) and makes a float copy only when torch
first needs it. Inputs and outputs are float32 whatever the weights are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.gguf_file import GGMLType
from engine.quant.dequantize import Bytes, dequantize_into, dequantize_rows


@dataclass(frozen=True, slots=True)
class Compute:
    """What torch computes with.

    dtype: of dequantised weights. head_dtype: of the output head, which sees single rows and is
    bound by memory rather than arithmetic. keeps_weights: False dequantises a matrix anew for every
    product, where memory cannot hold the whole model dequantised.
    """

    dtype: torch.dtype = torch.float32
    head_dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    keeps_weights: bool = True

    def for_head(self) -> Compute:
        """Return the same with the head's type for everything."""
        return replace(self, dtype=self.head_dtype)


class Product(Protocol):
    """A matrix, or several side by side: (..., in_features) to (..., out_features), float32."""

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        ...


class QuantLinear(nn.Module):
    """y = x W^T + b with W as stored in the file.

    data: uint8, mapped. ggml_type, shape: of the weight, (out_features, in_features). bias:
    (out_features,) float32 or None.
    """

    def __init__(
        self,
        data: Bytes,
        ggml_type: GGMLType,
        shape: tuple[int, int],
        *,
        compute: Compute,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.data = data
        self.ggml_type = ggml_type
        self.shape = shape
        self.bias = bias
        self.compute = compute
        self.fused: FusedLinear | None = None
        self._weight: Tensor | None = None

    @property
    def weight(self) -> Tensor:
        """The dequantised weight, made on first use: (out_features, in_features)."""
        if self._weight is not None:
            return self._weight
        if not self.compute.keeps_weights:
            return self._dequantized()
        self.materialize()
        assert self._weight is not None
        return self._weight

    @property
    def is_materialized(self) -> bool:
        """Whether a dequantised copy is held."""
        return self._weight is not None

    def materialize(self) -> None:
        """Dequantise now and keep it; together with the matrices this one is fused with."""
        if self._weight is not None or not self.compute.keeps_weights:
            return
        if self.fused is not None:
            self.fused.materialize()
            return
        self._weight = self._dequantized()

    def _dequantized(self) -> Tensor:
        weight = torch.empty(self.shape, dtype=self.compute.dtype)
        dequantize_into(weight, self.data, self.ggml_type)
        return weight.to(self.compute.device)

    def place(self, weight: Tensor) -> None:
        """Adopt a weight that somebody else dequantised."""
        assert tuple(weight.shape) == self.shape
        self._weight = weight

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., in_features) float32. Returns (..., out_features) float32."""
        return _linear(x, self.weight, self.bias)


class FusedLinear:
    """Several matrices of equal input that torch multiplies at once.

    Each part keeps its name and its file bytes; its weight becomes a view of one tall matrix.
    """

    def __init__(self, parts: Sequence[QuantLinear]) -> None:
        self.parts = tuple(parts)
        self.sizes = [part.shape[0] for part in self.parts]
        self._weight: Tensor | None = None
        self.bias = self._joined_bias()
        for part in self.parts:
            part.fused = self

    @property
    def weight(self) -> Tensor:
        """The parts' dequantised weights as one tall matrix, made on first use."""
        if self._weight is not None:
            return self._weight
        if not self.parts[0].compute.keeps_weights:
            return self._dequantized()
        self.materialize()
        assert self._weight is not None
        return self._weight

    def materialize(self) -> None:
        """Dequantise all parts into one matrix, of which each part's weight becomes a view."""
        if self._weight is not None or not self.parts[0].compute.keeps_weights:
            return
        self._weight = self._dequantized()
        for part, rows in zip(self.parts, self._rows(self._weight), strict=True):
            part.place(rows)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (..., in_features) float32. Returns the parts' outputs side by side, float32."""
        return _linear(x, self.weight, self.bias)

    def _dequantized(self) -> Tensor:
        first = self.parts[0]
        weight = torch.empty(sum(self.sizes), first.shape[1], dtype=first.compute.dtype)
        for part, rows in zip(self.parts, self._rows(weight), strict=True):
            dequantize_into(rows, part.data, part.ggml_type)
        return weight.to(first.compute.device)

    def _rows(self, weight: Tensor) -> tuple[Tensor, ...]:
        return torch.split(weight, self.sizes)

    def _joined_bias(self) -> Tensor | None:
        if all(part.bias is None for part in self.parts):
            return None
        rows = [
            torch.zeros(part.shape[0], device=part.compute.device)
            if part.bias is None
            else part.bias
            for part in self.parts
        ]
        return torch.cat(rows)


class QuantExperts(nn.Module):
    """A stack of matrices, one per expert; each is dequantised when it is first chosen.

    data, ggml_type: as in QuantLinear. shape: (experts, out_features, in_features). bias: (experts,
    out_features) float32 or None.
    """

    def __init__(
        self,
        data: Bytes,
        ggml_type: GGMLType,
        shape: tuple[int, int, int],
        *,
        compute: Compute,
        bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.data = data
        self.ggml_type = ggml_type
        self.shape = shape
        self.bias = bias
        self.experts = [
            QuantLinear(
                rows, ggml_type, shape[1:], compute=compute, bias=None if bias is None else bias[i]
            )
            for i, rows in enumerate(data.reshape(shape[0], -1))
        ]

    def forward(self, x: Tensor, expert: int) -> Tensor:
        """x: (T, in_features) float32. Returns (T, out_features) of one expert."""
        y: Tensor = self.experts[expert](x)
        return y


class QuantEmbedding(nn.Module):
    """Rows of a matrix looked up by token id, straight from the file's bytes.

    Nothing is dequantised beyond the rows asked for, so a matrix that also serves as output head is
    never held twice.
    """

    def __init__(
        self, data: Bytes, ggml_type: GGMLType, shape: tuple[int, int], *, compute: Compute
    ) -> None:
        super().__init__()
        self.data = data
        self.ggml_type = ggml_type
        self.shape = shape
        self.device = compute.device

    def forward(self, token_ids: Tensor) -> Tensor:
        """token_ids: (T,) int64. Returns (T, C) float32."""
        rows = dequantize_rows(self.data, self.ggml_type, self.shape, token_ids.cpu())
        return rows.to(self.device)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if weight.dtype == torch.float32:
        return F.linear(x, weight, bias)
    y = F.linear(x.to(weight.dtype), weight).float()
    return y if bias is None else y.add_(bias)
