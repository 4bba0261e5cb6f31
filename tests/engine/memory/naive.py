"""What a memory must do, written as plainly as possible: the oracle of these tests."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from engine.memory.interface import AttentionGroup, Memory, MemorySpec
from engine.memory.packing import numbers_of
from engine.memory.quantize import rotate

FINGERPRINT = b"test model"
NUM_HEADS = 4


def tiny_spec(*groups: AttentionGroup, fingerprint: bytes = FINGERPRINT) -> MemorySpec:
    """Two layers of full attention with two kv heads, unless groups are given."""
    default = (AttentionGroup(layers=(0, 1), num_key_value_heads=2, head_dim=8),)
    return MemorySpec(fingerprint=fingerprint, groups=groups or default)


@functools.lru_cache(maxsize=100_000)
def numbers(token_id: int, position: int, layer: int, heads: int, dim: int, kind: int) -> Tensor:
    """Keys (kind 0), values (1) or queries (2) of one token: a function of the token alone."""
    seed = ((token_id * 7919 + position) * 31 + layer) * 3 + kind
    return torch.randn(heads, dim, generator=torch.Generator().manual_seed(seed))


def rows(token_ids: list[int], start: int, layer: int, heads: int, dim: int, kind: int) -> Tensor:
    """(T, heads, dim) for tokens at positions start.. ."""
    return torch.stack(
        [numbers(t, start + i, layer, heads, dim, kind) for i, t in enumerate(token_ids)]
    )


def naive_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    first_position: int,
    *,
    scale: float,
    window: int | None = None,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """One query and one head at a time. q: (T, H, D); keys, values: (S, K, D), from position 0."""
    out = torch.empty(q.shape)
    share = q.shape[1] // keys.shape[1]
    for row in range(q.shape[0]):
        end = first_position + row + 1
        start = 0 if window is None else max(0, end - window)
        for head in range(q.shape[1]):
            scores = (keys[start:end, head // share].double() @ q[row, head].double()) * scale
            if soft_cap is not None:
                scores = soft_cap * torch.tanh(scores / soft_cap)
            if sinks is not None:
                scores = torch.cat((scores, sinks[head : head + 1].double()))
            probs = torch.softmax(scores, 0)[: end - start]
            out[row, head] = (probs @ values[start:end, head // share].double()).float()
    return out


def write_tokens(memory, spec, sequence: int, known: list[int], token_ids: list[int]) -> bool:
    """Place and commit tokens with the numbers that belong to them; False when memory is full."""
    if not memory.allocate([(sequence, len(token_ids))]):
        return False
    view = memory.step([(sequence, len(token_ids))])
    for group in spec.groups:
        heads, dim = group.num_key_value_heads, group.head_dim
        for layer in group.layers:
            k, v = (rows(token_ids, len(known), layer, heads, dim, kind) for kind in (0, 1))
            view.attend(layer, k, k, v, scale=1.0)
    memory.commit(sequence, token_ids)
    return True


def contents(memory, sequence: int, group: int, layer_slot: int, kind: int) -> Tensor:
    """Keys or values (S, K, D) that a sequence really holds, not rotated; 0 where given up."""
    found = memory._sequences[sequence]
    table = found.tables[group]
    size = table.memory.pool.layout.block_size
    planes = [numbers_of(block, size)[kind][layer_slot].float() for block in table.blocks]
    start = table.num_given_up * size
    if not planes:
        return torch.empty(0)
    rotation = (table.memory.rotation.keys, table.memory.rotation.values)[kind]
    held = torch.cat(planes, dim=1).transpose(0, 1)[: found.length - start]
    gone = held.new_zeros((start, *held.shape[1:]))
    return torch.cat((gone, rotate(held, rotation)))


def first_held(memory, sequence: int, group: int) -> int:
    """The first token that is not given up."""
    table = memory._sequences[sequence].tables[group]
    return table.num_given_up * table.memory.pool.layout.block_size


def assert_holds(memory, spec, sequence: int, token_ids: list[int], *, tolerance=0.0) -> None:
    """Check every number of every token of a sequence."""
    assert memory.length(sequence) == len(token_ids)
    assert list(memory.token_ids(sequence)) == token_ids
    if not token_ids:
        return
    for index, group in enumerate(spec.groups):
        for slot, layer in enumerate(group.layers):
            for kind in (0, 1):
                start = first_held(memory, sequence, index)
                held = contents(memory, sequence, index, slot, kind)[start:]
                assert start <= max(0, len(token_ids) - (group.window or len(token_ids)) + 1)
                heads, dim = group.num_key_value_heads, group.head_dim
                wanted = rows(token_ids, 0, layer, heads, dim, kind)[start:]
                torch.testing.assert_close(held, wanted, atol=tolerance, rtol=tolerance)


def assert_consistent(memory) -> None:
    """Check reference counts, the index and the books of every pool."""
    owners: dict[object, int] = {}
    for found in memory._sequences.values():
        for table in found.tables:
            assert table.num_given_up <= table.num_settled
            assert table.num_settled <= len(table.hashes) <= table.num_blocks
            assert all(block.is_full for block in table.span(table.num_given_up, len(table.hashes)))
            for block in table.blocks:
                owners[block] = owners.get(block, 0) + 1
                assert block.hash is not None or owners[block] == 1, "an open block is shared"
    for pool in (pool for of_group in memory._groups.memories for pool in of_group.pools):
        for block in pool.blocks():
            assert block.ref_count == owners.get(block, 0)
        sealed = [block for block in pool.blocks() if block.hash is not None]
        assert len(pool.index) == len(sealed)
        assert all(pool.index.get(block.hash) is block for block in sealed)
        idle = [block for block in sealed if block.is_idle]
        assert len(idle) == len(pool._queues)
        slots = sum(arena.num_blocks for arena in pool._arenas)
        assert slots == pool.num_blocks + sum(len(arena.free) for arena in pool._arenas)


class Driver:
    """Feeds tokens through a memory as a model would and checks every attention against naive."""

    def __init__(self, memory: Memory, spec: MemorySpec, *, tolerance: float = 2e-3) -> None:
        self.memory = memory
        self.spec = spec
        self.tolerance = tolerance

    def feed(self, sequence: int, known: list[int], token_ids: list[int], **options) -> Tensor:
        """Evaluate token_ids after known; returns the last layer's output (T, H, D)."""
        assert self.memory.allocate([(sequence, len(token_ids))])
        view = self.memory.step([(sequence, len(token_ids))])
        out = torch.empty(0)
        for group in self.spec.groups:
            for layer in group.layers:
                out = self._attend(view, group, layer, known, token_ids, options)
        self.memory.commit(sequence, token_ids)
        return out

    def _attend(self, view, group, layer, known, token_ids, options) -> Tensor:
        heads, dim = group.num_key_value_heads, group.head_dim
        start = len(known)
        q = rows(token_ids, start, layer, NUM_HEADS, dim, 2)
        k, v = (rows(token_ids, start, layer, heads, dim, kind) for kind in (0, 1))
        out = view.attend(layer, q, k, v, scale=0.3, **options)
        every = known + token_ids
        keys, values = (rows(every, 0, layer, heads, dim, kind) for kind in (0, 1))
        expected = naive_attention(
            q, keys, values, start, scale=0.3, window=group.window, **options
        )
        torch.testing.assert_close(out, expected, atol=self.tolerance, rtol=self.tolerance)
        return out
