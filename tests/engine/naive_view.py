"""The slow and obvious memory that every fast one is compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.memory.interface import BatchSlice, MemorySpec


class NaiveView:
    """One sequence; keys and values as plain float32 tensors that grow; a mask for every rule.

    Call ``begin(n)`` before each forward pass of n tokens.
    """

    def __init__(self, spec: MemorySpec) -> None:
        self.windows = {i: group.window for group in spec.groups for i in group.layers}
        self.kv: dict[int, tuple[Tensor, Tensor]] = {}
        self.cells: dict[tuple[int, str], Tensor] = {}
        for layer in spec.recurrent.layers if spec.recurrent else ():
            for name, shape in spec.recurrent.shapes:
                self.cells[layer, name] = torch.zeros(1, *shape)
        self.length = 0
        self.slices: tuple[BatchSlice, ...] = ()

    def begin(self, num_tokens: int) -> NaiveView:
        self.slices = (BatchSlice(0, 0, num_tokens, self.length),)
        self.length += num_tokens
        return self

    def attend(self, layer, q, k, v, *, scale, soft_cap=None, sinks=None) -> Tensor:
        keys, values = k.clone(), v.clone()
        if layer in self.kv:
            keys = torch.cat([self.kv[layer][0], keys])
            values = torch.cat([self.kv[layer][1], values])
        self.kv[layer] = keys, values
        groups = q.shape[1] // k.shape[1]
        keys, values = (x.repeat_interleave(groups, 1) for x in (keys, values))
        scores = torch.einsum("thd,shd->hts", q, keys) * scale
        if soft_cap is not None:
            scores = torch.tanh(scores / soft_cap) * soft_cap
        scores = scores.masked_fill(~self._mask(layer), float("-inf"))
        if sinks is not None:
            column = sinks[:, None, None].expand(-1, len(q), 1)
            weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        return torch.einsum("hts,shd->thd", weights, values)

    def read_state(self, layer: int, name: str) -> Tensor:
        return self.cells[layer, name]

    def write_state(self, layer: int, name: str, state: Tensor) -> None:
        self.cells[layer, name] = state.clone()

    def _mask(self, layer: int) -> Tensor:
        first = self.slices[0].first_position
        distance = torch.arange(first, self.length)[:, None] - torch.arange(self.length)
        window = self.windows[layer]
        return (distance >= 0) & (distance < (window or self.length))
