"""Mamba: no attention at all; every layer is a convolution and a selective scan."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.layers.mamba import selective_scan
from engine.layers.short_conv import causal_conv
from engine.memory.interface import RecurrentStepView
from engine.model_config import ModelConfig
from engine.models.llama import Llama, Step
from engine.weights import Weights


class MambaBlock(nn.Module):
    """One layer: in_proj, convolution, scan, gate, out_proj; added to its input."""

    def __init__(self, config: ModelConfig, layer: int, weights: Weights) -> None:
        super().__init__()
        assert config.state is not None
        state, hidden = config.state, config.hidden_size
        self.layer = layer
        inner, rank, size = state.inner_size, state.time_step_rank, state.state_size
        self.splits = [rank, size, size]
        self.attn_norm = weights.norm("attn_norm", hidden, config.norm_eps)
        self.ssm_in = weights.linear("ssm_in", 2 * inner, hidden)
        self.ssm_conv1d = weights.vector("ssm_conv1d.weight", inner, state.conv_kernel)
        self.ssm_conv1d_bias = weights.vector("ssm_conv1d.bias", inner)
        self.ssm_x = weights.linear("ssm_x", rank + 2 * size, inner)
        self.ssm_dt = weights.linear("ssm_dt", inner, rank)
        self.ssm_a = weights.vector("ssm_a", inner, size)
        self.ssm_d = weights.vector("ssm_d", inner)
        self.ssm_out = weights.linear("ssm_out", hidden, inner)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x: (T, C) float32. Returns (T, C) float32."""
        u, z = self.ssm_in(self.attn_norm(x)).chunk(2, dim=-1)
        u = causal_conv(u, self.ssm_conv1d, self.layer, step.cells)
        u = F.silu(u + self.ssm_conv1d_bias)
        y = self._scan(u, step.cells) + u * self.ssm_d
        out: Tensor = x + self.ssm_out(y * F.silu(z))
        return out

    def _scan(self, u: Tensor, memory: RecurrentStepView) -> Tensor:
        """Scan every sequence of the batch; the cell "ssm" (channels, N) is rewritten."""
        dt, b, c = self.ssm_x(u).split(self.splits, dim=-1)
        dt = F.softplus(self.ssm_dt(dt))
        cells = memory.read_state(self.layer, "ssm")
        outputs, states = [], []
        for row, part in enumerate(memory.slices):
            rows = slice(part.start, part.end)
            y, state = selective_scan(u[rows], dt[rows], self.ssm_a, b[rows], c[rows], cells[row])
            outputs.append(y)
            states.append(state)
        memory.write_state(self.layer, "ssm", torch.stack(states))
        return torch.cat(outputs)


class Mamba(Llama):
    """Source: arXiv 2312.00752."""

    def make_block(self, layer: int, weights: Weights) -> nn.Module:
        """Build one layer."""
        return MambaBlock(self.config, layer, weights)
