"""Threads, scratch memory and packed weights on the native side, as Python objects.

Arrays are numpy; a program holds on to every array and structure its operations point to.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.errors import OutOfMemoryError
from engine.kernels.library import KernelInfo, available, load_library
from engine.kernels.structs import (
    Acts,
    Cell,
    ContextSizes,
    GroupShape,
    Head,
    Linear,
    Matrix,
    Op,
    OpKind,
    Slice,
    Step,
    address,
)
from engine.pages import new_pages

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

ALIGNMENT_BYTES = 64
HUGE_PAGE_BYTES = 2 << 20
GROUP_COLUMNS = 32
KIND_OF_PARTS = 6  # RP_Q8P of rp.h
HEAD_KINDS = (
    OpKind.HEAD_PREPARE,
    OpKind.HEAD_SKETCH,
    OpKind.HEAD_FIND_SEEDS,
    OpKind.HEAD_SEEDS,
    OpKind.HEAD_FIND_SURE,
    OpKind.HEAD_SURE,
    OpKind.HEAD_WHOLE,
)
# Rows and keys of a dense tile of attention, rows of one product of it (sixteen lanes), and the
# numbers its queries have at most, but for the rows of one product.
_TILE_ROWS = 384
_TILE_KEYS = 128
_TILE_LANES = 48
_TILE_NUMBERS = 49152


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """Weights repacked for the chosen instruction set. shape: (rows, columns)."""

    data: npt.NDArray[np.uint8]
    kind: int
    shape: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes a context must have room for.

    max_rows: rows of one step. max_columns: of any matrix. head_dim, num_heads: of any layer.
    """

    max_rows: int
    max_columns: int
    num_heads: int
    head_dim: int

    @property
    def partial_rows(self) -> int:
        """Room for (slot, row) pairs of partial attention results."""
        return max(2 * self.max_rows, 1024)

    @property
    def scratch_bytes(self) -> int:
        """Bytes one thread needs, for three unpacked tiles or a tile of attention."""
        unpacked = 3 * (self.max_columns * 32 + self.max_columns // 32 * 2 * 16 * 4)
        row = max(self.max_columns, self.num_heads * self.head_dim, 1024)
        most = max(unpacked, self._tile_bytes, 4 * row)
        return most + ALIGNMENT_BYTES & -ALIGNMENT_BYTES

    @property
    def _tile_bytes(self) -> int:
        """Bytes of a dense tile of attention, as lay_out_tile in attend_tile.h places them."""
        rows = 6 * max(_TILE_NUMBERS, _TILE_LANES * self.head_dim) + 16 * _TILE_ROWS
        keys = (4 * self.head_dim + 12) * _TILE_KEYS + 32 * self.head_dim
        return rows + keys + 6 * _TILE_KEYS * _TILE_LANES + 24 * ALIGNMENT_BYTES


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[np.generic]:
    """Return a zeroed array whose data starts at a cache line."""
    item = np.dtype(dtype).itemsize
    raw = np.zeros(int(np.prod(shape)) * item + ALIGNMENT_BYTES, np.uint8)
    shift = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[shift : shift + int(np.prod(shape)) * item].view(dtype).reshape(shape)


class HugeBytes:
    """Zeroed bytes on huge pages where the system has them, given out piece by piece."""

    def __init__(self, num_bytes: int) -> None:
        """Reserve room for num_bytes.

        Raises: OutOfMemoryError.
        """
        try:
            whole = np.frombuffer(new_pages(num_bytes + HUGE_PAGE_BYTES), np.uint8)
        except (OSError, ValueError, OverflowError) as error:
            raise OutOfMemoryError("There is not enough memory for this model.") from error
        self._left = whole[-whole.ctypes.data % HUGE_PAGE_BYTES :]

    def take(self, num_bytes: int) -> npt.NDArray[np.uint8]:
        """Return the next num_bytes, which start at a cache line."""
        piece = self._left[:num_bytes]
        assert len(piece) == num_bytes
        self._left = self._left[num_bytes + (-num_bytes % ALIGNMENT_BYTES) :]
        return piece


class QuantizedActs:
    """Room for activations (rows, width) as int16 in groups of 32, and as floats if wanted.

    has_spans: what writes them sees whole spans of columns, so that products of many rows may be
    in fixed point. out: address of the floats, None without them.
    """

    def __init__(
        self, rows: int, width: int, *, has_floats: bool = False, has_spans: bool = True
    ) -> None:
        groups = width // GROUP_COLUMNS
        self.q = zeros((rows, width), np.int16)
        self.d = zeros((rows, groups))
        self.ds = zeros((rows, groups))
        self.sums = zeros((rows, groups, 2), np.int32)
        self.struct = Acts(
            pointer(self.q), pointer(self.d), pointer(self.ds), pointer(self.sums), width, has_spans
        )
        self.floats = zeros((rows, width)) if has_floats else None
        self.out = None if self.floats is None else pointer(self.floats)


class Context:
    """One thread pool with its scratch memory; not to be used by two threads at once."""

    def __init__(
        self,
        limits: Limits,
        *,
        num_threads: int,
        groups: Sequence[GroupShape] = (),
        info: KernelInfo | None = None,
    ) -> None:
        """Start the threads.

        Raises: OutOfMemoryError. The library must be available.
        """
        library, info = load_library(), info or available()
        assert library is not None
        assert info is not None
        self.info = info
        self._library = library
        self._shapes = (GroupShape * max(1, len(groups)))(*groups)
        sizes = ContextSizes(
            num_threads,
            len(groups),
            limits.scratch_bytes,
            limits.partial_rows,
            limits.num_heads * limits.head_dim,
            limits.num_heads,
        )
        self._handle: int | None = library.rp_create(info.index, sizes, self._shapes)
        if not self._handle:
            raise OutOfMemoryError("There is not enough memory for this model.")

    def packed_bytes(self, ggml_type: int, shape: tuple[int, int]) -> int:
        """Return what a matrix takes once packed, a multiple of a cache line."""
        size: int = self._library.rp_packed_bytes(self._handle, ggml_type, *shape)
        return size + (-size % ALIGNMENT_BYTES)

    def pack(
        self,
        data: npt.NDArray[np.uint8],
        ggml_type: int,
        shape: tuple[int, int],
        room: HugeBytes | None = None,
        *,
        has_parts: bool = False,
    ) -> PackedMatrix:
        """Return a matrix of a packable GGUF type repacked into room; data is only read.

        has_parts: the bits of Q8_0 lie apart, for the operations of an output head.
        """
        size = self.packed_bytes(ggml_type, shape)
        out = (room or HugeBytes(size)).take(size)
        assert data.nbytes >= shape[0] * self._library.rp_row_bytes(ggml_type, shape[1])
        self._library.rp_pack(
            self._handle, ggml_type, int(has_parts), pointer(data), *shape, pointer(out)
        )
        kind = KIND_OF_PARTS if has_parts else kind_of(ggml_type)
        return PackedMatrix(out, kind, shape)

    def run(self, program: Program, step: Step) -> None:
        """Run a program on all threads.

        Raises: OutOfMemoryError.
        """
        if self._library.rp_run(self._handle, program.ops, program.num_ops, step):
            raise OutOfMemoryError("There is not enough memory to continue this reply.")

    def close(self) -> None:
        """Stop the threads; harmless when repeated."""
        if self._handle:
            self._library.rp_destroy(self._handle)
            self._handle = None

    def __del__(self) -> None:
        self.close()


class Program:
    """A list of operations; keeps alive whatever they point to."""

    def __init__(self) -> None:
        self._ops: list[Op] = []
        self._kept: list[object] = []
        self._array: ctypes.Array[Op] | None = None
        self._is_tail = False

    @property
    def num_ops(self) -> int:
        """Number of operations."""
        return len(self._ops)

    @property
    def ops(self) -> ctypes.Array[Op]:
        """The operations as the library takes them."""
        if self._array is None:
            self._array = (Op * len(self._ops))(*self._ops)
        return self._array

    def add(self, kind: OpKind, args: ctypes.Structure, *kept: object) -> None:
        """Append an operation; ``kept`` lives as long as the program.

        After SELECT, operations see only the rows whose logits are wanted.
        """
        self._ops.append(Op(int(kind), int(self._is_tail), address(args)))
        self._is_tail = self._is_tail or kind is OpKind.SELECT
        self.keep(args, *kept)
        self._array = None

    def keep(self, *objects: object) -> None:
        """Let what operations point to live as long as the program."""
        self._kept.extend(objects)


def matrices(entries: Sequence[Matrix]) -> ctypes.Array[Matrix]:
    """Return a C array of matrices."""
    return (Matrix * len(entries))(*entries)


def pointer(array: npt.NDArray[np.generic]) -> int:
    """Return the address of a contiguous array's first element."""
    assert array.flags.c_contiguous
    # As array.ctypes.data, which makes an object first and is asked for several times a step.
    address: int = array.__array_interface__["data"][0]
    return address


def kind_of(ggml_type: int) -> int:
    """Return the packed kind of a GGUF type, -1 without one."""
    library = load_library()
    assert library is not None
    kind: int = library.rp_kind_of(ggml_type)
    return kind


def row_bytes(ggml_type: int, columns: int) -> int:
    """Return the bytes of one row in the file, -1 for a type that cannot be read."""
    library = load_library()
    assert library is not None
    size: int = library.rp_row_bytes(ggml_type, columns)
    return size


def make_step(
    token_ids: npt.NDArray[np.int32],
    positions: npt.NDArray[np.int32],
    logit_rows: npt.NDArray[np.int32],
    groups: Sequence[ctypes.Array[Slice]],
    cells: Sequence[Cell] = (),
    num_sure: int = 0,
) -> Step:
    """Describe one step. groups: the slices of the batch in every attention group.

    cells: of every sequence where layers are recurrent. num_sure: of a single row of logits, how
    many of the largest must be exact; 0 is all. The arrays must outlive the step.
    """
    tables = (ctypes.POINTER(Slice) * max(1, len(groups)))(
        *(ctypes.cast(slices, ctypes.POINTER(Slice)) for slices in groups)
    )
    return Step(
        pointer(token_ids),
        pointer(positions),
        pointer(logit_rows),
        tables,
        len(positions),
        len(logit_rows),
        len(groups[0]) if groups else 0,
        len(groups),
        (Cell * len(cells))(*cells),
        len(cells),
        num_sure,
    )


def add_head(program: Program, linear: Linear, *kept: object) -> None:
    """Append the operations of an output head to a program.

    linear: of one matrix packed in parts, without bias. kept: what it points to.
    """
    num_rows, width = linear.matrices[0].num_rows, linear.acts[0].width
    rooms = (
        zeros((width,), np.int8),
        zeros((width // GROUP_COLUMNS * 3,)),
        zeros((num_rows,)),
        zeros((1,)),
        zeros((num_rows,), np.int32),
    )
    args = Head(linear, *map(pointer, rooms))
    program.keep(rooms, *kept)
    for kind in HEAD_KINDS:
        program.add(kind, args)
