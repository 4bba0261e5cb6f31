"""The C structures of ``src/rp.h``, field by field. Plain ctypes; nothing is allocated here."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum, IntFlag


class OpKind(IntEnum):
    """Operations of a program."""

    EMBED = 0
    NORM = 1
    LINEAR = 2
    GATE = 3
    TRIG = 4
    ROPE = 5
    ATTEND = 6
    MERGE = 7
    SELECT = 8
    FLOAT_LINEAR = 9
    CONV = 10
    SCAN = 11
    ROW_NORM = 12
    GROW = 13
    HEAD_PREPARE = 14
    HEAD_SKETCH = 15
    HEAD_FIND_SEEDS = 16
    HEAD_SEEDS = 17
    HEAD_FIND_SURE = 18
    HEAD_SURE = 19
    HEAD_WHOLE = 20


class Activation(IntEnum):
    """Gated activations; GELU is the tanh approximation."""

    SILU = 0
    GELU = 1
    NONE = 2


class Codec(IntEnum):
    """Number formats of keys and values."""

    F16 = 0
    BF16 = 1
    F32 = 2
    INT8 = 3
    K8V4 = 4


class Rotated(IntFlag):
    """What is stored times the Hadamard matrix."""

    KEYS = 1
    VALUES = 2


class Matrix(Structure):
    """Packed weights of one matrix and where its product (T, num_rows) goes."""

    _fields_ = (
        ("data", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("out_stride", c_int64),
        ("num_rows", c_int32),
        ("kind", c_int32),
        ("is_added", c_int32),
        ("reserved", c_int32),
    )


class Acts(Structure):
    """Activations as int16 in groups of 32 columns; has_spans: see rp.h."""

    _fields_ = (
        ("q", c_void_p),
        ("d", c_void_p),
        ("ds", c_void_p),
        ("sums", c_void_p),
        ("width", c_int32),
        ("has_spans", c_int32),
    )


class Slice(Structure):
    """Batch rows start..end of one sequence, and the addresses of its blocks.

    first_place: of the first row among the tokens of the blocks, whatever its position. is_packed:
    address of one byte per block, None where all blocks are exact.
    """

    _fields_ = (
        ("start", c_int32),
        ("end", c_int32),
        ("first_place", c_int32),
        ("num_blocks", c_int32),
        ("blocks", c_void_p),
        ("is_packed", c_void_p),
    )


class Cell(Structure):
    """Batch rows start..end of one sequence, and its recurrent state, which is written."""

    _fields_ = (("start", c_int32), ("end", c_int32), ("data", c_void_p))


class Step(Structure):
    """What changes from step to step.

    num_sure: of a single row of logits, how many of the largest must be exact; 0 is all.
    """

    _fields_ = (
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("logit_rows", c_void_p),
        ("slices", POINTER(POINTER(Slice))),
        ("num_rows", c_int32),
        ("num_logit_rows", c_int32),
        ("num_slices", c_int32),
        ("num_groups", c_int32),
        ("cells", POINTER(Cell)),
        ("num_cells", c_int32),
        ("num_sure", c_int32),
    )


class PackedSlab(Structure):
    """Where one layer's numbers and scales lie in a quantised block; offsets in bytes."""

    _fields_ = (
        ("key_offset", c_int64),
        ("value_offset", c_int64),
        ("key_scale_offset", c_int64),
        ("value_scale_offset", c_int64),
        ("codec", c_int32),
        ("reserved", c_int32),
    )


class Slab(Structure):
    """Where one layer's keys and values lie in a block; offsets and stride in bytes.

    rotation: bits of ``Rotated``. packed: the layout of quantised blocks, where there are some.
    """

    _fields_ = (
        ("key_offset", c_int64),
        ("value_offset", c_int64),
        ("head_stride", c_int64),
        ("group", c_int32),
        ("block_size", c_int32),
        ("codec", c_int32),
        ("window", c_int32),
        ("rotation", c_int32),
        ("reserved", c_int32),
        ("packed", POINTER(PackedSlab)),
    )


class PlanePack(Structure):
    """One plane of every layer of a block, to be quantised; strides in bytes between layers."""

    _fields_ = (
        ("numbers", c_void_p),
        ("out", c_void_p),
        ("scales", c_void_p),
        ("numbers_stride", c_int64),
        ("out_stride", c_int64),
        ("scales_stride", c_int64),
        ("num_layers", c_int32),
        ("num_rows", c_int32),
        ("width", c_int32),
        ("has_nibbles", c_int32),
    )


class Embed(Structure):
    """Rows of a GGUF table, dequantised and scaled."""

    _fields_ = (
        ("table", c_void_p),
        ("out", c_void_p),
        ("row_bytes", c_int64),
        ("width", c_int32),
        ("type", c_int32),
        ("scale", c_float),
        ("reserved", c_int32),
    )


class Norm(Structure):
    """RMS norm, written to ``out``, added to it, or quantised."""

    _fields_ = (
        ("x", c_void_p),
        ("weight", c_void_p),
        ("out", c_void_p),
        ("acts", POINTER(Acts)),
        ("width", c_int32),
        ("is_added", c_int32),
        ("eps", c_float),
        ("is_logit_rows", c_int32),
    )


class Linear(Structure):
    """Products of several matrices with the same activations."""

    _fields_ = (
        ("acts", POINTER(Acts)),
        ("matrices", POINTER(Matrix)),
        ("num_matrices", c_int32),
        ("is_logit_rows", c_int32),
    )


class Head(Structure):
    """The output head: one matrix, packed in parts, and room for what its passes note.

    bytes: as many as columns. scales: three float32 per group of 32. bounds: float32 of every tile
    of rows. exact: int32 of every piece of 64 tiles.
    """

    _fields_ = (
        ("linear", Linear),
        ("bytes", c_void_p),
        ("scales", c_void_p),
        ("bounds", c_void_p),
        ("threshold", c_void_p),
        ("exact", c_void_p),
    )


class Gate(Structure):
    """act(gate) * up."""

    _fields_ = (
        ("gate", c_void_p),
        ("up", c_void_p),
        ("out", c_void_p),
        ("acts", POINTER(Acts)),
        ("stride", c_int64),
        ("width", c_int32),
        ("activation", c_int32),
    )


class Trig(Structure):
    """Cosines and sines (T, 2, num_pairs) of the step's positions."""

    _fields_ = (
        ("frequencies", c_void_p),
        ("cos_sin", c_void_p),
        ("magnitude", c_float),
        ("num_pairs", c_int32),
    )


class Rope(Structure):
    """Norm, rotation and scale of q and k; keys and values into their blocks."""

    _fields_ = (
        ("q", c_void_p),
        ("k", c_void_p),
        ("v", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("cos_sin", c_void_p),
        ("slab", POINTER(Slab)),
        ("q_stride", c_int64),
        ("k_stride", c_int64),
        ("v_stride", c_int64),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("num_pairs", c_int32),
        ("is_neox", c_int32),
        ("q_scale", c_float),
        ("eps", c_float),
        ("reserved", c_int32),
    )


class Attend(Structure):
    """Attention over block slabs, and the merge of its partial results."""

    _fields_ = (
        ("q", c_void_p),
        ("sinks", c_void_p),
        ("slab", POINTER(Slab)),
        ("out", c_void_p),
        ("acts", POINTER(Acts)),
        ("q_stride", c_int64),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("soft_cap", c_float),
    )


class Select(Structure):
    """Keep only the rows whose logits are wanted."""

    _fields_ = (
        ("x", c_void_p),
        ("acts", POINTER(Acts)),
        ("floats", c_void_p),
        ("width", c_int32),
        ("reserved", c_int32),
    )


class FloatLinear(Structure):
    """Products of float matrices with rows of float activations."""

    _fields_ = (
        ("x", c_void_p),
        ("matrices", POINTER(Matrix)),
        ("x_stride", c_int64),
        ("width", c_int32),
        ("num_matrices", c_int32),
        ("is_logit_rows", c_int32),
        ("reserved", c_int32),
    )


class Conv(Structure):
    """A short causal convolution with gates; its history lies in the cells."""

    _fields_ = (
        ("x", c_void_p),
        ("gate_in", c_void_p),
        ("gate_out", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("acts", POINTER(Acts)),
        ("stride", c_int64),
        ("cell_offset", c_int64),
        ("channels", c_int32),
        ("taps", c_int32),
        ("activation", c_int32),
        ("reserved", c_int32),
    )


class Scan(Structure):
    """The selective scan; its state lies in the cells."""

    _fields_ = (
        ("u", c_void_p),
        ("dt", c_void_p),
        ("b", c_void_p),
        ("c", c_void_p),
        ("z", c_void_p),
        ("a", c_void_p),
        ("d", c_void_p),
        ("out", c_void_p),
        ("acts", POINTER(Acts)),
        ("bc_stride", c_int64),
        ("z_stride", c_int64),
        ("cell_offset", c_int64),
        ("channels", c_int32),
        ("num_states", c_int32),
    )


class RowNorm(Structure):
    """LayerNorm or RMS norm of rows of any stride."""

    _fields_ = (
        ("x", c_void_p),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("acts", POINTER(Acts)),
        ("x_stride", c_int64),
        ("out_stride", c_int64),
        ("width", c_int32),
        ("is_centered", c_int32),
        ("eps", c_float),
        ("is_logit_rows", c_int32),
    )


class Grow(Structure):
    """Rows that grow with their position."""

    _fields_ = (
        ("x", c_void_p),
        ("stride", c_int64),
        ("growth", c_double),
        ("width", c_int32),
        ("period", c_int32),
    )


class Op(Structure):
    """One operation of a program."""

    _fields_ = (("kind", c_int32), ("is_tail", c_int32), ("args", c_void_p))


class ContextSizes(Structure):
    """Room for threads and partial results."""

    _fields_ = (
        ("num_threads", c_int32),
        ("num_groups", c_int32),
        ("scratch_bytes", c_int64),
        ("partial_rows", c_int64),
        ("partial_floats", c_int64),
        ("num_heads", c_int64),
    )


class GroupShape(Structure):
    """What planning needs to know of an attention group; window 0 is all."""

    _fields_ = (("num_kv_heads", c_int32), ("block_size", c_int32), ("window", c_int32))


def address(structure: Structure | ctypes.Array[Structure]) -> int:
    """Return the address of a structure; the caller keeps it alive."""
    return ctypes.addressof(structure)
