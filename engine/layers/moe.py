"""Mixture of experts: a router picks a few feed-forward networks per token."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from engine.layers.mlp import silu
from engine.model_config import ExpertConfig
from engine.weights import Weights


class SparseMLP(nn.Module):
    """Softmax over all experts, the best few, renormalised. Source: arXiv 2401.04088."""

    def __init__(self, config: ExpertConfig, hidden_size: int, weights: Weights) -> None:
        super().__init__()
        self.config = config
        num, width = config.num_experts, config.moe_intermediate_size
        self.ffn_gate_inp = weights.linear("ffn_gate_inp", num, hidden_size)
        self.ffn_gate_exps = weights.experts("ffn_gate_exps", num, width, hidden_size)
        self.ffn_up_exps = weights.experts("ffn_up_exps", num, width, hidden_size)
        self.ffn_down_exps = weights.experts("ffn_down_exps", num, hidden_size, width)

    def forward(self, x: Tensor) -> Tensor:
        """x: (T, C) float32. Returns (T, C) float32."""
        shares, chosen = self.route(self.ffn_gate_inp(x))
        out = x.new_zeros(x.shape)
        for expert in sorted(set(chosen.flatten().tolist())):
            rows, slots = (chosen == expert).nonzero(as_tuple=True)
            y = self._expert(expert, x[rows])
            out.index_add_(0, rows, y * shares[rows, slots, None])
        return out

    def route(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Choose experts. logits: (T, experts). Returns shares and indices, both (T, chosen)."""
        shares, chosen = F.softmax(logits, dim=-1).topk(self.config.num_experts_per_tok, dim=-1)
        return shares / shares.sum(-1, keepdim=True), chosen

    def activate(self, gate: Tensor, up: Tensor) -> Tensor:
        """Combine the two projections of an expert, both (T, I)."""
        return silu(gate) * up

    def _expert(self, expert: int, x: Tensor) -> Tensor:
        hidden = self.activate(self.ffn_gate_exps(x, expert), self.ffn_up_exps(x, expert))
        y: Tensor = self.ffn_down_exps(hidden, expert)
        return y
