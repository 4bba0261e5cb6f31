"""Evaluates tokens with the native kernels: one call into the library per forward pass.

The program is built once per memory layout; a step only fills in token ids, positions and the
addresses of blocks.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, cast

import numpy as np

from engine.kernels.context import Context, Program, make_step, pointer
from engine.kernels.library import KernelInfo, available
from engine.kernels.structs import Cell, GroupShape, Slice
from engine.native_buffers import Buffers, Packed, limits_of
from engine.native_program import LayerMemory, ProgramBuilder
from engine.native_recurrent import RecurrentProgramBuilder
from engine.native_support import reason_against

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.config import KVCodec
    from engine.memory.interface import NativeCells, NativeStepView, NativeTable, StepView
    from engine.models import Model
    from engine.runner import Logits

DEFAULT_MAX_ROWS = 256
# Of the embedding, every token looked up leaves up to 64 KiB of the file in memory.
_RELEASE_AFTER_TOKENS = 128


class NativeRunner:
    """Runs a model of attention or recurrent layers; a Runner like the torch one.

    The model may be lazy: its float weights are never touched. Not for two threads at once.
    """

    def __init__(
        self,
        model: Model,
        *,
        num_threads: int,
        max_rows: int = DEFAULT_MAX_ROWS,
        is_cancelled: Callable[[], bool] = lambda: False,
        release_embedding: Callable[[], None] = lambda: None,
    ) -> None:
        """Repack the weights, about a second per GB.

        max_rows: most tokens of one step. The model must be supported (``supports``).
        release_embedding: lets go of the file's pages that looking tokens up has read.
        Raises: LoadCancelledError, OutOfMemoryError.
        """
        info = available()
        assert info is not None
        self.info: KernelInfo = info
        self.description = f"kernels {info.isa}"
        self.max_rows = max_rows
        self._model = model
        self._num_threads = num_threads
        self._release_embedding = release_embedding
        self._num_looked_up = 0
        spec = model.config.memory_spec(b"")
        groups = spec.groups
        self._has_cells = spec.recurrent is not None
        self._group_layers = [group.layers for group in groups]
        self._shapes = [(group.num_key_value_heads, group.window or 0) for group in groups]
        self._buffers = Buffers(model, max_rows)
        self._context = self._make_context(block_size=1)
        self._packed = Packed(model, self._context, is_cancelled)
        self._keep: Callable[[], None] | None = None
        self._program: Program | None = None
        self._layout: tuple[object, ...] = ()

    @staticmethod
    def supports(model: Model, codec: KVCodec) -> bool:
        """Tell whether kernels are built and know every part of the model and its memory."""
        return available() is not None and reason_against(model, codec) is None

    def knows(self, codec: KVCodec) -> bool:
        """Tell whether memory of this format can be read for the model."""
        return reason_against(self._model, codec) is None

    def forward(
        self, token_ids: Sequence[int], first_position: int, view: StepView, *, wants_logits: bool
    ) -> Logits | None:
        """Return the logits (V,) of the last token, None where they are not wanted."""
        num_tokens = len(token_ids)
        positions = range(first_position, first_position + num_tokens)
        rows = [num_tokens - 1] if wants_logits else []
        logits = self.forward_batch(token_ids, positions, view, rows)
        return logits[0] if wants_logits else None

    def forward_batch(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        view: StepView,
        logit_rows: Sequence[int],
    ) -> Logits:
        """Evaluate a placed batch of any sequences; return the logits (B, V) of its rows.

        token_ids, positions: (T,), T at most max_rows. view: of attention memory.
        """
        return self._run(token_ids, positions, view, logit_rows).copy()

    def forward_last(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        view: StepView,
        *,
        keep: Callable[[], None],
        num_sure: int = 0,
    ) -> Logits:
        """Evaluate one token of each sequence (B,); return the logits (B, V).

        keep: called before the next pass overwrites them. num_sure: how many of the largest logits
        of a single token must be exact, 0 for all; fewer are quicker.
        """
        logits = self._run(token_ids, positions, view, range(len(token_ids)), num_sure)
        self._keep = keep
        return logits

    def close(self) -> None:
        """Stop the threads."""
        self._context.close()

    def _run(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        view: StepView,
        logit_rows: Sequence[int],
        num_sure: int = 0,
    ) -> Logits:
        """Evaluate a placed batch; return logits that the next pass overwrites."""
        assert 0 < len(token_ids) <= self.max_rows
        keep, self._keep = self._keep, None
        if keep is not None:
            keep()
        native = cast("NativeStepView", view)
        program = self._prepare(native)
        ids = np.array(token_ids, np.int32)
        at = np.array(positions, np.int32)
        rows = np.array(logit_rows, np.int32)
        slices = [self._slices(native, layers[0]) for layers in self._group_layers]
        self._context.run(program, make_step(ids, at, rows, slices, self._cells(view), num_sure))
        self._count_looked_up(len(ids))
        return self._logits(len(rows))

    def _count_looked_up(self, num_tokens: int) -> None:
        self._num_looked_up += num_tokens
        if self._num_looked_up >= _RELEASE_AFTER_TOKENS:
            self._release_embedding()
            self._num_looked_up = 0

    def _logits(self, num_rows: int) -> Logits:
        """Return the logits, scaled and capped as the model wants; else the buffer itself."""
        config = self._model.config
        logits: Logits = self._buffers.logits[:num_rows].view(np.float32)
        if config.logit_scale is not None:
            logits = logits / np.float32(config.logit_scale)
        if config.final_logit_softcapping is not None:
            cap = np.float32(config.final_logit_softcapping)
            logits = np.tanh(logits / cap) * cap
        return logits

    def _slices(self, view: NativeStepView, layer: int) -> ctypes.Array[Slice]:
        tables: Sequence[NativeTable] = view.tables(layer)
        entries = [
            Slice(
                piece.start,
                piece.end,
                piece.first_position,
                len(table.pointers),
                pointer(table.pointers),
                pointer(table.is_packed),
            )
            for piece, table in zip(view.slices, tables, strict=True)
        ]
        return (Slice * len(entries))(*entries)

    def _cells(self, view: StepView) -> list[Cell]:
        """Return where the recurrent state of every sequence lies."""
        if not self._has_cells:
            return []
        addresses = cast("NativeCells", view).cell_addresses()
        return [
            Cell(piece.start, piece.end, address)
            for piece, address in zip(view.slices, addresses, strict=True)
        ]

    def _prepare(self, view: NativeStepView) -> Program:
        """Return the program for the view's layout; built when the layout is new."""
        first = [view.exact_layout(layers[0]) for layers in self._group_layers]
        packed = [view.packed_layout(layers[0]) for layers in self._group_layers]
        layout = (tuple(first), tuple(packed))
        if self._program is not None and layout == self._layout:
            return self._program
        memory = {
            layer: LayerMemory.of(view, layer, group)
            for group, layers in enumerate(self._group_layers)
            for layer in layers
        }
        self._context.close()
        self._context = self._make_context(first[0].block_size if first else 1)
        self._program, self._layout = self._builder(memory, view).build(), layout
        return self._program

    def _builder(self, memory: dict[int, LayerMemory], view: NativeStepView) -> ProgramBuilder:
        if not self._has_cells:
            return ProgramBuilder(self._model, self._packed, self._buffers, memory)
        cells = cast("NativeCells", view)
        return RecurrentProgramBuilder(self._model, self._packed, self._buffers, memory, cells)

    def _make_context(self, block_size: int) -> Context:
        shapes = [GroupShape(heads, block_size, window) for heads, window in self._shapes]
        return Context(
            limits_of(self._model, self.max_rows), num_threads=self._num_threads, groups=shapes
        )
