"""The contract between the engine and every kind of model memory.

Kinds: attention (paged blocks), sliding window, recurrent (cells with checkpoints), hybrid. The
engine and the models see only this file; the kinds see tensors and stores. No SQL, no Qt here.

A *sequence* is a run of token positions 0..length-1 that belongs to one session branch. Placing a
batch is transactional: ``allocate`` either places every token or changes nothing. Refusals are
return values, never exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from engine.memory.storage import Manifest, SnapshotJob

SequenceId = int


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """Attention layers of equal geometry: one slab shape, one block table.

    layers: indices of the model's layers, ascending. window: tokens visible to a query, itself
    included; None is full attention.
    """

    layers: tuple[int, ...]
    num_key_value_heads: int
    head_dim: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """State of the recurrent layers: one float32 tensor per layer and name.

    shapes: name -> shape of one cell in one layer, e.g. {"conv": (3, 1024), "ssm": (1024, 16)}.
    """

    layers: tuple[int, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """What a model needs remembered; read from its configuration.

    fingerprint: bytes that change when weights, RoPE or tokenizer change.
    """

    fingerprint: bytes
    groups: tuple[AttentionGroup, ...]
    recurrent: RecurrentState | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """The longest reusable prefix and the tiers its tokens came from.

    restore_ms: time spent promoting. damaged: stored blocks that failed verification.
    """

    hot: int = 0
    warm: int = 0
    cold: int = 0
    restore_ms: float = 0.0
    damaged: int = 0

    @property
    def total(self) -> int:
        """Tokens in place."""
        return self.hot + self.warm + self.cold


@dataclass(frozen=True, slots=True)
class TierUse:
    """Bytes of one tier. budget 0 means the tier is off."""

    name: str
    used_bytes: int
    budget_bytes: int
    num_blocks: int


@dataclass(frozen=True, slots=True)
class MemoryBreakdown:
    """Real bytes by tier and what sharing saves.

    shared_blocks: blocks with more than one owner. saved_bytes: what those owners would hold
    without sharing. bytes_per_token: of one token in the hot tier. held_bytes: of the hot blocks
    that some sequence needs; the other ones are kept for reuse and given up when room is needed.
    """

    tiers: tuple[TierUse, ...]
    shared_blocks: int
    saved_bytes: int
    bytes_per_token: int
    block_size: int
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Rows start..end of a flattened batch belong to one sequence, at places first_position..

    Places count the tokens in memory; in a thinned-out copy positions are ahead of them.
    """

    sequence: SequenceId
    start: int
    end: int
    first_position: int


class StepView(Protocol):
    """The memory as a model sees it during one forward pass over a placed batch."""

    slices: tuple[BatchSlice, ...]

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
        """Write keys and values of the batch, then attend causally over everything visible.

        q: (T, H, D); k, v: (T, K, D), keys already rotated; T counts all rows of the batch.
        sinks: (H,) logits that join the softmax and are dropped. Returns (T, H, D), dtype of q.
        """
        ...


@dataclass(frozen=True, slots=True)
class NativeLayout:
    """Where one layer's numbers lie in a slab; all offsets and strides in bytes.

    key, value: offset of that layer's plane, laid out [kv_head][token][width]. *_head_stride: from
    a head to the next; *_token_stride: from a token to the next. key_scale, value_scale: offset of
    the layer's scale planes ([kv_head][token][scales], float16), 0 without scales.
    """

    codec: str
    block_size: int
    key: int
    value: int
    key_head_stride: int
    key_token_stride: int
    value_head_stride: int
    value_token_stride: int
    key_scale: int = 0
    value_scale: int = 0


@dataclass(frozen=True, slots=True)
class NativeTable:
    """The blocks of one batch slice, in order of position.

    pointers: (N,) int64, address of each slab; 0 where a block lies before the window and is gone.
    is_packed: (N,) uint8, 1 where the slab has the packed layout, 0 where it has the exact one.
    first_position: of the slice's first new token; num_tokens: visible after this step.
    """

    pointers: npt.NDArray[np.int64]
    is_packed: npt.NDArray[np.uint8]
    first_position: int
    num_tokens: int


class NativeStepView(StepView, Protocol):
    """What attention memory offers besides ``attend``, for kernels that read slabs themselves.

    A kernel writes keys and values of the new tokens through the tables before it attends. Blocks
    that receive new tokens always have the exact layout.
    """

    def tables(self, layer: int) -> Sequence[NativeTable]:
        """Return one table per batch slice; the same objects for all layers of a group."""
        ...

    def exact_layout(self, layer: int) -> NativeLayout:
        """Return the layout of blocks that hold the numbers themselves."""
        ...

    def packed_layout(self, layer: int) -> NativeLayout | None:
        """Return the layout of quantised blocks; None where the codec has none."""
        ...

    def is_rotated(self, layer: int) -> tuple[bool, bool]:
        """Tell whether keys, and whether values, are stored times the Hadamard matrix.

        Then queries and new keys (and values) are multiplied by it first, and outputs afterwards
        where values are. See engine/memory/quantize.py.
        """
        ...

    def window(self, layer: int) -> int | None:
        """Return the tokens a query of this layer sees, itself included; None is all."""
        ...


class RecurrentStepView(StepView, Protocol):
    """What memory of a model with recurrent layers offers besides ``attend``.

    Cells are those of ``MemorySpec.recurrent``. A layer reads a cell once, before it writes it
    once; what was written is the state after the last token of each slice.
    """

    def read_state(self, layer: int, name: str) -> Tensor:
        """Return one cell per batch slice, (slices, *shape) float32; zeros before any token."""
        ...

    def write_state(self, layer: int, name: str, state: Tensor) -> None:
        """Replace the cells of all batch slices. state: (slices, *shape) float32, copied."""
        ...


class NativeCells(Protocol):
    """What memory of recurrent layers offers kernels that read and write cells themselves.

    A cell is one run of float32 numbers per batch slice; what a kernel writes is the state after
    the slice's last token.
    """

    def cell_addresses(self) -> Sequence[int]:
        """Return the address of each batch slice's cell, to be written in this step."""
        ...

    def cell_offset(self, layer: int, name: str) -> int:
        """Return where a tensor of a layer begins in a cell, in numbers; C order from there."""
        ...


class Memory(Protocol):
    """State of one model for many sequences."""

    @property
    def checkpoint_spacing(self) -> int:
        """Tokens between the lengths that stay reachable while text is read; 0 where all do.

        Where it is not 0, batches should end at its multiples and at message borders.
        """
        ...

    def create(self) -> SequenceId:
        """Return a new, empty sequence."""
        ...

    def attach(self, sequence: SequenceId, token_ids: Sequence[int]) -> Match:
        """Extend a sequence with the longest stored prefix of token_ids, from any tier.

        The sequence may already hold a prefix of token_ids. At most len(token_ids) - 1 tokens are
        placed, because the last one must be evaluated for its logits.
        """
        ...

    def length(self, sequence: SequenceId) -> int:
        """Return the number of tokens in place."""
        ...

    def allocate(self, batch: Sequence[tuple[SequenceId, int]]) -> bool:
        """Reserve room for n more tokens of each sequence; False, and no change, when it is full.

        May evict unreferenced blocks and demote idle sequences.
        """
        ...

    def step(self, batch: Sequence[tuple[SequenceId, int]]) -> StepView:
        """Return the view for a forward pass over the tokens just allocated."""
        ...

    def commit(self, sequence: SequenceId, token_ids: Sequence[int]) -> None:
        """Tell which tokens the last pass evaluated; full blocks are sealed and shareable."""
        ...

    def fork(self, source: SequenceId, length: int) -> SequenceId | None:
        """Return a new sequence that shares the first length tokens; None when unreachable.

        Costs reference counts and at most one block copy.
        """
        ...

    def truncate(self, sequence: SequenceId, length: int) -> int:
        """Cut a sequence to at most length tokens; return the length reached (may be smaller)."""
        ...

    def checkpoint(self, sequence: SequenceId) -> None:
        """Keep the present length reachable by ``truncate`` and ``fork``; at message borders.

        Costs nothing where every length is.
        """
        ...

    def rollback_limit(self, sequence: SequenceId, length: int) -> int:
        """Return the longest length, at most the one given, ``truncate`` and ``fork`` reach."""
        ...

    def pin(self, sequence: SequenceId, length: int) -> None:
        """Keep the first length tokens, read or not, exact and longest; for system prompts."""
        ...

    def rest(self, sequence: SequenceId) -> None:
        """Let a sequence that is not used now take as little room as its codec allows.

        Its recent tokens, exact until then, are quantised as well where the codec does that.
        """
        ...

    def release(self, sequence: SequenceId) -> None:
        """Give a sequence up; its sealed blocks stay reusable until evicted."""
        ...

    def snapshot(
        self,
        sequence: SequenceId,
        conversation_id: str,
        branch: str,
        log: bytes,
        *,
        borders: Sequence[int] = (),
    ) -> SnapshotJob | None:
        """Return what must be written so that the sequence can resume; None when all is stored.

        log: the session's own record, stored and returned untouched. borders: lengths somebody may
        go back to; where layers see a window, it is stored there and at the end and nowhere else.
        """
        ...

    def restore(self, manifest: Manifest) -> tuple[SequenceId, bytes, Match]:
        """Bring a stored branch back: a sequence as long as could be verified, its log, the match.

        Two phases: everything is read and verified before a live block is touched.
        Raises: SnapshotError when the manifest itself is unusable.
        """
        ...

    def breakdown(self) -> MemoryBreakdown:
        """Return the real bytes by tier."""
        ...

    def trim(self) -> int:
        """Give memory that holds nothing back to the system; return its bytes. For idle times."""
        ...

    def clear(self) -> None:
        """Drop every sequence and every cached block of the hot and warm tiers."""
        ...
