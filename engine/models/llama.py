"""Llama, and every decoder that differs from it by traits only.

Attributes carry the names of GGUF tensors. The models know shapes and order of operations; where
keys and values live is the memory's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from engine.layers.mlp import gated
from engine.layers.moe import SparseMLP
from engine.layers.norm import Norm
from engine.layers.rope import RotaryEmbedding, Rotation
from engine.memory.interface import RecurrentStepView, StepView
from engine.model_config import SLIDING, ModelConfig
from engine.models.traits import HeadNorm, Traits
from engine.quant.linear import FusedLinear, Product
from engine.weights import Weights


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers of one forward pass share.

    rotations: by layer type. query_scale: (T, 1, 1) or None, multiplies rotated queries.
    """

    memory: StepView
    rotations: dict[str, Rotation]
    query_scale: Tensor | None = None

    def on(self, device: torch.device) -> Step:
        """Return the same for layers on a device."""
        rotations = {kind: rotation.on(device) for kind, rotation in self.rotations.items()}
        scale = None if self.query_scale is None else self.query_scale.to(device)
        return Step(self.memory, rotations, scale)

    @property
    def cells(self) -> RecurrentStepView:
        """The memory of a model whose specification asks for recurrent cells."""
        return cast("RecurrentStepView", self.memory)


class Block(nn.Module):
    """One decoder layer: attention and a feed-forward network, each added to its input."""

    def __init__(self, config: ModelConfig, traits: Traits, layer: int, weights: Weights) -> None:
        super().__init__()
        self.config = config
        self.traits = traits
        self.layer = layer
        self.layer_type = config.layer_types[layer]
        period = traits.no_rope_period
        self.has_rope = config.has_rope and (period is None or (layer + 1) % period != 0)
        self._take_norms(weights)
        self._take_attention(weights)
        self._take_feed_forward(weights)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x: (T, C) float32, not kept. Returns (T, C) float32."""
        x = self._add(x, self.attention(_apply(self.attn_norm, x), step), self.post_attention_norm)
        return self._add(x, self.feed_forward(_apply(self.ffn_norm, x)), self.post_ffw_norm)

    def attention(self, x: Tensor, step: Step) -> Tensor:
        """x: (T, C), normalised. Returns the attention branch (T, C)."""
        config = self.config
        num_queries, num_keys = config.num_attention_heads, config.num_key_value_heads
        heads = self.qkv(x).view(len(x), -1, config.head_dim)
        q, k, v = torch.split(heads, [num_queries, num_keys, num_keys], dim=1)
        if self.traits.head_norm is not HeadNorm.NONE:
            self._normalize_heads(q, k)
        if self.has_rope:
            step.rotations[self.layer_type].apply_(heads[:, : num_queries + num_keys])
        if step.query_scale is not None:
            q.mul_(step.query_scale)
        branch: Tensor = self.attn_output(self._attend(q, k, v, step).reshape(len(x), -1))
        return branch

    def feed_forward(self, x: Tensor) -> Tensor:
        """x: (T, C), normalised. Returns the feed-forward branch (T, C)."""
        if self.experts is not None:
            mixed: Tensor = self.experts(x)
            return mixed
        hidden = self.gate_up(x)
        activation = self.traits.activation
        hidden = gated(hidden, activation) if self.traits.is_gated else activation(hidden)
        branch: Tensor = self.ffn_down(hidden)
        return branch

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, step: Step) -> Tensor:
        config = self.config
        return step.memory.attend(
            self.layer,
            q,
            k,
            v,
            scale=config.attention_scale,
            soft_cap=config.attn_logit_softcapping,
            sinks=self.attn_sinks,
        )

    def _add(self, x: Tensor, branch: Tensor, post_norm: Norm | None) -> Tensor:
        branch = _apply(post_norm, branch)
        if self.config.residual_scale != 1.0:
            branch = branch * self.config.residual_scale
        return x + branch

    def _normalize_heads(self, q: Tensor, k: Tensor) -> None:
        """Normalise queries and keys in place; both are views (T, heads, D) of one tensor."""
        for heads, norm in ((q, self.attn_q_norm), (k, self.attn_k_norm)):
            assert norm is not None
            flat = heads if self.traits.head_norm is HeadNorm.PER_HEAD else heads.flatten(1)
            heads.copy_(norm(flat).view(heads.shape))

    def _take_norms(self, weights: Weights) -> None:
        traits, size, eps = self.traits, self.config.hidden_size, self.config.norm_eps

        def norm(name: str, is_present: bool) -> Norm | None:
            return weights.norm(name, size, eps) if is_present else None

        self.attn_norm = norm(traits.attn_norm, traits.has_pre_norm)
        self.ffn_norm = norm(traits.ffn_norm, traits.has_pre_norm)
        self.post_attention_norm = norm("post_attention_norm", traits.has_post_norm)
        self.post_ffw_norm = norm("post_ffw_norm", traits.has_post_norm)

    def _take_attention(self, weights: Weights) -> None:
        config = self.config
        hidden, eps = config.hidden_size, config.norm_eps
        q_size = config.num_attention_heads * config.head_dim
        kv_size = config.num_key_value_heads * config.head_dim
        self.qkv: Product
        if self.traits.has_fused_qkv and weights.has("attn_qkv.weight"):
            self.attn_qkv = weights.linear("attn_qkv", q_size + 2 * kv_size, hidden)
            self.qkv = self.attn_qkv
        else:
            self.attn_q = weights.linear("attn_q", q_size, hidden)
            self.attn_k = weights.linear("attn_k", kv_size, hidden)
            self.attn_v = weights.linear("attn_v", kv_size, hidden)
            self.qkv = FusedLinear((self.attn_q, self.attn_k, self.attn_v))
        self.attn_output = weights.linear("attn_output", hidden, q_size)
        is_whole = self.traits.head_norm is HeadNorm.WHOLE
        has_norm = self.traits.head_norm is not HeadNorm.NONE
        sizes = (q_size, kv_size) if is_whole else (config.head_dim, config.head_dim)
        self.attn_q_norm = weights.norm("attn_q_norm", sizes[0], eps) if has_norm else None
        self.attn_k_norm = weights.norm("attn_k_norm", sizes[1], eps) if has_norm else None
        self.attn_sinks: Tensor | None = None

    def _take_feed_forward(self, weights: Weights) -> None:
        config = self.config
        hidden, width = config.hidden_size, config.intermediate_size
        self.experts = self._make_experts(weights)
        if self.experts is not None:
            return
        self.gate_up: Product
        if self.traits.is_gated and not self.traits.has_fused_gate_up:
            self.ffn_gate = weights.linear("ffn_gate", width, hidden)
            self.ffn_up = weights.linear("ffn_up", width, hidden)
            self.gate_up = FusedLinear((self.ffn_gate, self.ffn_up))
        else:
            rows = 2 * width if self.traits.is_gated else width
            self.ffn_up = weights.linear("ffn_up", rows, hidden)
            self.gate_up = self.ffn_up
        self.ffn_down = weights.linear("ffn_down", hidden, width)

    def _make_experts(self, weights: Weights) -> SparseMLP | None:
        """Take the experts of a layer that has some."""
        if self.config.experts is None or not weights.has("ffn_gate_inp.weight"):
            return None
        return SparseMLP(self.config.experts, self.config.hidden_size, weights)


class Llama(nn.Module):
    """A decoder of equal blocks. Subclasses state their traits, or another block."""

    traits: ClassVar[Traits] = Traits()
    output_norm_name: ClassVar[str] = "output_norm"

    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.token_embd = weights.embedding("token_embd", config.vocab_size, size)
        last = weights.behind_layers()
        self.output_norm = last.norm(self.output_norm_name, size, config.norm_eps)
        self.output = last.head(config.vocab_size, size)
        self.ropes = self._ropes(weights) if config.rope.dim else {}
        layers = [weights.layer(number) for number in range(config.num_hidden_layers)]
        self.devices = [layer.compute.device for layer in layers]
        self.blk = nn.ModuleList(
            self.make_block(number, layer) for number, layer in enumerate(layers)
        )

    def make_block(self, layer: int, weights: Weights) -> nn.Module:
        """Build one layer: called with (x, step), returns x."""
        return Block(self.config, self.traits, layer, weights)

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        memory: StepView,
        logit_rows: Tensor | None = None,
    ) -> Tensor:
        """Evaluate tokens and return logits.

        token_ids, positions: (T,) int64 on the CPU. memory: placed for these tokens; it is written.
        logit_rows: (B,) rows whose logits are wanted, None for all. Returns (B, V) float32, on the
        device of the last layer.
        """
        x = self.token_embd(token_ids)
        if self.config.embedding_scale != 1.0:
            x = x * self.config.embedding_scale
        step = self._step(positions, memory)
        steps = {device: step.on(device) for device in set(self.devices)}
        for block, device in zip(self.blk, self.devices, strict=True):
            x = block(x.to(device), steps[device])
        return self.logits(x if logit_rows is None else x[logit_rows.to(x.device)])

    def logits(self, x: Tensor) -> Tensor:
        """Turn the last layer's output (B, C) into logits (B, V)."""
        logits: Tensor = self.output(self.output_norm(x))
        if self.config.logit_scale is not None:
            logits = logits / self.config.logit_scale
        cap = self.config.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def _step(self, positions: Tensor, memory: StepView) -> Step:
        rotations = {kind: rope(positions) for kind, rope in self.ropes.items()}
        return Step(memory, rotations, self._query_scale(positions))

    def _query_scale(self, positions: Tensor) -> Tensor | None:
        """Grow queries with the distance beyond the trained context (Mistral 3)."""
        growth = self.config.temperature_scale
        if growth == 0.0:
            return None
        periods = positions // self.config.rope.original_context_length
        return (1 + growth * torch.log1p(periods.double())).float()[:, None, None]

    def _ropes(self, weights: Weights) -> dict[str, RotaryEmbedding]:
        config, style = self.config, self.traits.rope_style
        shared = RotaryEmbedding(config.rope, style, factors=self._rope_factors(weights))
        ropes = dict.fromkeys(config.layer_types, shared)
        if SLIDING in ropes and config.rope_local is not None:
            ropes[SLIDING] = RotaryEmbedding(config.rope_local, style)
        return ropes

    def _rope_factors(self, weights: Weights) -> Tensor | None:
        if not weights.has("rope_freqs.weight"):
            return None
        return weights.vector("rope_freqs.weight", self.config.rope.dim // 2)


def _apply(norm: Norm | None, x: Tensor) -> Tensor:
    return x if norm is None else norm(x)
