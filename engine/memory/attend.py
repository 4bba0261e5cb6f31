"""Attention over keys and values that lie contiguous: pure functions on tensors.

The oracle for the native kernels, so plain rather than clever. Knows no blocks.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def causal_bias(
    first_position: int, num_queries: int, first_key: int, window: int | None, device: torch.device
) -> Tensor:
    """Return (T, S) float32: 0 where a query sees a key, -inf elsewhere.

    Queries stand at first_position.., keys at first_key.. up to the last query's own position.
    """
    queries = torch.arange(first_position, first_position + num_queries, device=device)[:, None]
    keys = torch.arange(first_key, first_position + num_queries, device=device)[None, :]
    hidden = keys > queries
    if window is not None:
        hidden |= keys <= queries - window
    return torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -torch.inf)


def attend_fused(
    q: Tensor, keys: Tensor, values: Tensor, *, scale: float, bias: Tensor | None
) -> Tensor:
    """Attend with torch's fused product. bias None: causal, with as many keys as queries.

    q: (T, H, D); keys, values: (K, S, D). Returns (T, H, D).
    """
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=bias,
        is_causal=bias is None,
        scale=scale,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)


def attend_plain(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    bias: Tensor | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
) -> Tensor:
    """Attend by matmul, softmax, matmul; the fast way for one query, and the general one.

    q: (T, H, D); keys, values: (K, S, D). bias: (T, S). sinks: (H,). key_scales, value_scales:
    (K, S), folded into scores and probabilities. Returns (T, H, D).
    """
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads, num_keys, _ = keys.shape
    share = num_heads // num_kv_heads
    grouped = (q * scale).view(num_tokens, num_kv_heads, share, head_dim).permute(1, 2, 0, 3)
    rows = grouped.reshape(num_kv_heads, share * num_tokens, head_dim)
    scores = torch.matmul(rows, keys.transpose(1, 2))
    if key_scales is not None:
        scores *= key_scales[:, None]
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    if bias is not None:
        scores.view(num_kv_heads, share, num_tokens, num_keys).add_(bias)
    probs = _softmax(scores, sinks, num_tokens)
    if value_scales is not None:
        probs *= value_scales[:, None]
    out = torch.matmul(probs, values).view(num_kv_heads, share, num_tokens, head_dim)
    return out.permute(2, 0, 1, 3).reshape(num_tokens, num_heads, head_dim)


def _softmax(scores: Tensor, sinks: Tensor | None, num_tokens: int) -> Tensor:
    """Return probabilities over the keys of (K, share * T, S) scores.

    sinks take their part of the sum and are dropped.
    Source: gpt-oss model card, "attention sinks".
    """
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    num_kv_heads, num_rows, _ = scores.shape
    per_row = sinks.to(scores.dtype).view(num_kv_heads, -1, 1)
    column = per_row.expand(-1, -1, num_tokens).reshape(num_kv_heads, num_rows, 1)
    return torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1]
