"""Thins a history out: of many places, those are kept that the last queries looked at most.

Knows tensors, blocks and one sequence; which sequence, and whether to do it at all, is decided
elsewhere. Source: SnapKV, arXiv 2404.14469.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from engine.memory.packing import numbers_of, write_numbers
from engine.memory.prefix_index import HASH_BYTES
from engine.memory.sequence import Prefix, from_bytes, to_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence as SequenceOf

    from torch import Tensor

    from engine.memory.groups import Groups
    from engine.memory.interface import AttentionGroup, BatchSlice
    from engine.memory.sequence import BlockTable, Sequence
    from engine.memory.step import PagedStepView

NUM_SINKS = 4
NUM_RECENT = 64
# A word is several tokens: what stands beside an important one is kept with it.
POOL_TOKENS = 7


@dataclass(frozen=True, slots=True)
class Thinning:
    """What must stay. num_kept: places in all; num_first, num_recent: at both ends."""

    num_kept: int
    num_first: int
    num_recent: int

    @classmethod
    def of(cls, num_places: int, decay: float, *, num_system: int) -> Thinning:
        """Plan to keep a part of num_places, system prompt, sinks and recent tokens in any case.

        decay: the part that is kept, in (0, 1].
        """
        num_recent = min(NUM_RECENT, num_places)
        num_first = min(max(NUM_SINKS, num_system), num_places - num_recent)
        wanted = math.ceil(decay * num_places)
        return cls(max(wanted, num_first + num_recent), num_first, num_recent)


@dataclass(slots=True)
class MassRecorder:
    """A StepView of one slice that notes how much attention every place gets.

    mass: by layer, (K, S) float32 on the CPU, the mean over queries and the heads of a group.
    """

    view: PagedStepView
    mass: dict[int, Tensor] = field(default_factory=dict)
    slices: tuple[BatchSlice, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.slices = self.view.slices

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Attend as the view does, and note the mass."""
        out = self.view.attend(layer, q, k, v, scale=scale, soft_cap=soft_cap, sinks=sinks)
        keys = self.view.keys(layer, 0).float()
        self.mass[layer] = attention_mass(q.float() * scale, keys, soft_cap=soft_cap).cpu()
        return out


def attention_mass(q: Tensor, keys: Tensor, *, soft_cap: float | None = None) -> Tensor:
    """Return what part of the attention of the last T positions each of S keys gets, (K, S).

    q: (T, H, D), scaled; keys: (K, S, D), the last T of them the queries' own.
    """
    num_queries, num_heads, head_dim = q.shape
    num_kv_heads, num_keys, _ = keys.shape
    share = num_heads // num_kv_heads
    rows = q.view(num_queries, num_kv_heads, share, head_dim).permute(1, 2, 0, 3)
    scores = torch.einsum("kstd,knd->kstn", rows, keys)
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=q.device)
    hidden = ones.triu(num_keys - num_queries + 1)
    probs = torch.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1)
    return probs.mean(dim=(1, 2))


def choose_places(mass: dict[int, Tensor], group: AttentionGroup, thinning: Thinning) -> Tensor:
    """Return the places to keep, (L, K, M) int64 ascending, for every layer and kv head its own."""
    stacked = torch.stack([mass[layer] for layer in group.layers])
    layers, heads, num_places = stacked.shape
    pooled = F.avg_pool1d(
        stacked.view(layers * heads, 1, num_places),
        POOL_TOKENS,
        stride=1,
        padding=POOL_TOKENS // 2,
    ).view(layers, heads, num_places)
    pooled[..., : thinning.num_first] = torch.inf
    pooled[..., num_places - thinning.num_recent :] = torch.inf
    return pooled.topk(thinning.num_kept, dim=-1).indices.sort(dim=-1).values


def distilled(groups: Groups, found: Sequence, kept: SequenceOf[Tensor]) -> Sequence | None:
    """Return a new sequence with only the places kept, (L, K, M) per group; None without room."""
    num_places = kept[0].shape[-1]
    places = kept[0][0, 0].tolist()
    cell_ids = to_bytes([found.token_ids[at] for at in places])
    copy = groups.new_sequence(
        Prefix(found.all_token_ids()[:], num_places, _derived_root(found, kept))
    )
    copy.num_pinned = min(found.num_pinned, num_places)
    if not groups.reserve([(copy, num_places)]):
        return None
    for source, target, chosen in zip(found.tables, copy.tables, kept, strict=True):
        _copy_places(source, target, chosen)
    copy.token_ids.extend(from_bytes(cell_ids))
    groups.seal_full(copy)
    return copy


def _copy_places(source: BlockTable, target: BlockTable, kept: Tensor) -> None:
    """Write the chosen places of one table into the open blocks of another."""
    size = target.memory.pool.layout.block_size
    numbers = [numbers_of(block, size) for block in source.blocks]
    keys, values = (torch.cat(kind, dim=2) for kind in zip(*numbers, strict=True))
    for at in range(target.num_blocks):
        part = kept[..., at * size : (at + 1) * size, None]
        index = part.expand(*part.shape[:3], keys.shape[3])
        write_numbers(
            target.block(at), 0, torch.gather(keys, 2, index), torch.gather(values, 2, index)
        )


def _derived_root(found: Sequence, kept: SequenceOf[Tensor]) -> bytes:
    """Return a parent that no other blocks have but those with the same history and choice."""
    digest = hashlib.blake2b(b"thinned|", digest_size=HASH_BYTES)
    digest.update(found.tables[0].root)
    digest.update(to_bytes(found.all_token_ids()))
    for chosen in kept:
        digest.update(chosen.to(torch.int32).cpu().numpy().tobytes())
    return digest.digest()
