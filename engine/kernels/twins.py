"""What the native operations compute, written plainly in torch: the oracle of their tests."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

GROUP_COLUMNS = 32


def quantize_acts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quantise activations to int16 in groups of 32 columns.

    x: (T, C) float32, C a multiple of 32. Returns q (T, C) int16 and d (T, C / 32) float32 with
    x = d * q.
    """
    groups = x.view(len(x), -1, GROUP_COLUMNS)
    top = groups.abs().amax(-1, keepdim=True)
    inverse = torch.where(top > 0, 32767.0 / top, torch.zeros_like(top))
    q = torch.round(groups * inverse).to(torch.int16)
    return q.flatten(-2), (top / 32767.0).squeeze(-1)


def dequantize_acts(q: Tensor, d: Tensor) -> Tensor:
    """Return d * q: (T, C) float32."""
    return (q.view(len(q), -1, GROUP_COLUMNS).float() * d[..., None]).flatten(-2)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply quantised activations with exact weights.

    x: (T, C) float32. weight: (N, C) float32. Returns (T, N) float32.
    """
    return F.linear(dequantize_acts(*quantize_acts(x)).double(), weight.double()).float()


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise rows. x: (T, C). Returns (T, C)."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def row_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, *, is_centered: bool
) -> Tensor:
    """LayerNorm, or without centering an RMS norm with a bias. x: (T, C). Returns (T, C)."""
    x = x.double()
    if is_centered:
        x = x - x.mean(-1, keepdim=True)
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
    return (y if bias is None else y + bias).float()


def grow(x: Tensor, positions: Tensor, growth: float, period: int) -> Tensor:
    """Scale rows by their distance beyond period. x: (T, C). positions: (T,). Returns (T, C)."""
    periods = positions // period
    return (x.double() * (1 + growth * torch.log1p(periods.double()))[:, None]).float()


def gate(gate: Tensor, up: Tensor | None, *, is_silu: bool) -> Tensor:
    """Return act(gate) * up, each (T, I)."""
    activated = F.silu(gate) if is_silu else F.gelu(gate, approximate="tanh")
    return activated if up is None else activated * up


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    first_position: int,
    *,
    window: int | None = None,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attend causally; queries are scaled already.

    q: (T, H, D) at positions first_position... k, v: (S, K, D). sinks: (H,). Returns (T, H, D).
    """
    per_kv = q.shape[1] // k.shape[1]
    keys, values = (t.repeat_interleave(per_kv, 1).double() for t in (k, v))
    scores = torch.einsum("thd,shd->hts", q.double(), keys)
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    positions = first_position + torch.arange(q.shape[0])[:, None]
    distance = positions - torch.arange(k.shape[0])
    hidden = (distance < 0) | (distance >= (window or k.shape[0] + 1))
    scores = scores.masked_fill(hidden, -torch.inf)
    if sinks is not None:
        extra = sinks.double()[:, None, None].expand(-1, q.shape[0], 1)
        scores = torch.cat([scores, extra], -1)
    weights = scores.softmax(-1)[..., : k.shape[0]]
    return torch.einsum("hts,shd->thd", weights, values).float()


def short_conv(x: Tensor, weight: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Convolve channels over time.

    x: (T, channels). weight: (channels, K), the last tap meets the current token. state: (channels,
    K - 1) inputs before. Returns (T, channels) and the state afterwards.
    """
    history = torch.cat([state, x.T], 1)
    taps = history.double().unfold(1, weight.shape[1], 1)
    return (taps * weight[:, None]).sum(-1).T.float(), history[
        :, history.shape[1] - state.shape[1] :
    ]


def scan(
    u: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Run one sequence through the selective scan.

    u, dt: (T, channels), dt before softplus. a: (channels, N). b, c: (T, N). state: (channels, N).
    Returns (T, channels) and the state afterwards.
    """
    steps, state = F.softplus(dt.double(), threshold=100), state.double()
    outputs = []
    for t in range(len(u)):
        fed = (steps[t] * u[t])[:, None] * b[t]
        state = state * torch.exp(steps[t][:, None] * a) + fed
        outputs.append(state @ c[t].double())
    return torch.stack(outputs).float(), state.float()


def sketch(x: Tensor, weight: Tensor, *, bits: int) -> Tensor:
    """Multiply activations of 8 bits with the high bits of weights, the other ones at their mean.

    x: (T, C) float32. weight: (N, C) float32, whole numbers from -127 to 127 times a scale of every
    32 columns, of which one is 127. Returns (T, N) float32.
    """
    groups = weight.view(len(weight), -1, GROUP_COLUMNS)
    scale = groups.abs().amax(-1, keepdim=True) / 127.0
    step = 2.0 ** (8 - bits)
    high = torch.floor((torch.round(groups / scale.clamp_min(1e-30)) + 128.0) / step)
    q, d = quantize_acts(x)
    byte_step = 32767.0 / 127.0
    rounded = torch.round(q.float() / byte_step)
    products = F.linear(dequantize_acts(byte_step * rounded, d), (step * scale * high).flatten(-2))
    sums = dequantize_acts(q, d).view(len(x), -1, GROUP_COLUMNS).sum(-1)
    return products + ((step - 1.0) / 2.0 - 128.0) * F.linear(sums, scale.squeeze(-1))
