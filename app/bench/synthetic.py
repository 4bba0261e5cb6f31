"""Models of any size without a download: Llama shapes with random Q4_K weights.

They say nothing sensible; how fast they are read does not depend on that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from app.errors import AppError
from engine.ggml_type import GGMLType

if TYPE_CHECKING:
    from gguf import GGUFWriter

# Quarters, scales and minima of a Q4_K block are random: this makes weights of mean 0 and 258 d.
_MINIMA_OF_SCALES = 7.5
_SPREAD_OF_SCALE = 258.0
_SPARE_BYTES = 256 << 20
_UNKNOWN, _CONTROL, _NORMAL, _BYTE = 2, 3, 1, 6


class SyntheticModelError(AppError):
    """The model cannot be written: no gguf package, or the disk is full or refuses."""


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor that will be written. shape: torch order, rows first."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor itself."""
        return prod(self.shape) // self.type.block_elements * self.type.block_bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama; all widths are multiples of 256, which is a block of Q4_K."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    vocab_size: int
    context_length: int = 8192

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden_size // self.num_heads


# Llama 3.2 1B, but for a vocabulary as small models have it.
SHAPES = {"1b": Shape(16, 2048, 8192, 32, 8, 49152)}


@contextmanager
def synthetic_model(folder: Path, name: str, *, is_kept: bool) -> Iterator[Path]:
    """Give a model's file, written unless it is there; it is removed afterwards unless kept.

    Raises: SyntheticModelError when it cannot be written, KeyError for a name not in ``SHAPES``.
    """
    path = folder / f"synthetic-{name}.gguf"
    if not path.exists():
        write_synthetic(path, SHAPES[name])
    try:
        yield path
    finally:
        if not is_kept:
            path.unlink(missing_ok=True)


def write_synthetic(path: Path, shape: Shape) -> None:
    """Write a model with random weights, whole or not at all.

    Raises: SyntheticModelError when the disk is full or refuses, or without the gguf package.
    """
    tensors = _tensors(shape)
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_room(path.parent, sum(tensor.num_bytes for tensor in tensors))
        _write(unfinished, shape, tensors)
        unfinished.replace(path)
    except OSError as error:
        raise SyntheticModelError(
            "The synthetic model cannot be written.", detail=str(error)
        ) from error
    except ImportError as error:
        raise SyntheticModelError(
            "The package that writes models is not installed: pip install gguf", detail=str(error)
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write(path: Path, shape: Shape, tensors: Sequence[TensorPlan]) -> None:
    # Late: only development needs to write models.
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(path, "llama")
    try:
        _add_sizes(writer, shape)
        _add_vocabulary(writer, shape.vocab_size)
        for tensor in tensors:
            kind = GGMLQuantizationType(int(tensor.type))
            numbers = np.dtype(np.float32)
            writer.add_tensor_info(tensor.name, tensor.shape, numbers, tensor.num_bytes, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for content in _contents(tensors):
            writer.write_tensor_data(content)
    finally:
        writer.close()


def _check_room(folder: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < num_bytes + _SPARE_BYTES:
        raise SyntheticModelError(
            "There is not enough room on the disk for the synthetic model.",
            detail=f"{folder}: {num_bytes >> 20} MiB are needed, {free >> 20} MiB are free",
        )


def _add_sizes(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_name("synthetic")
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.hidden_size)
    writer.add_feed_forward_length(shape.intermediate_size)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.vocab_size)


def _add_vocabulary(writer: GGUFWriter, size: int) -> None:
    """Add a SentencePiece vocabulary of bytes, and words that no text contains."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256]
    tokens += [f"\u2581{number}" for number in range(len(tokens), size)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types(kinds + [_NORMAL] * (size - len(kinds)))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _tensors(shape: Shape) -> list[TensorPlan]:
    size, wide = shape.hidden_size, shape.intermediate_size
    kv_size = shape.num_kv_heads * shape.head_dim
    plans = [_matrix("token_embd", shape.vocab_size, size), _norm("output_norm", size)]
    for layer in range(shape.num_layers):
        at = f"blk.{layer}."
        plans += [
            _norm(at + "attn_norm", size),
            _matrix(at + "attn_q", size, size),
            _matrix(at + "attn_k", kv_size, size),
            _matrix(at + "attn_v", kv_size, size),
            _matrix(at + "attn_output", size, size),
            _norm(at + "ffn_norm", size),
            _matrix(at + "ffn_gate", wide, size),
            _matrix(at + "ffn_up", wide, size),
            _matrix(at + "ffn_down", size, wide),
        ]
    return plans


def _matrix(name: str, rows: int, columns: int) -> TensorPlan:
    return TensorPlan(f"{name}.weight", (rows, columns), GGMLType.Q4_K)


def _norm(name: str, size: int) -> TensorPlan:
    return TensorPlan(f"{name}.weight", (size,), GGMLType.F32)


def _contents(tensors: Sequence[TensorPlan]) -> Iterator[npt.NDArray[np.generic]]:
    random = np.random.default_rng(0)
    for tensor in tensors:
        if tensor.type is GGMLType.F32:
            yield np.ones(tensor.shape, np.float32)
        else:
            yield _random_blocks(random, tensor)


def _random_blocks(random: np.random.Generator, tensor: TensorPlan) -> npt.NDArray[np.uint8]:
    """Return Q4_K blocks whose products keep the size of what they are multiplied with."""
    width = tensor.type.block_bytes
    blocks = np.frombuffer(bytearray(random.bytes(tensor.num_bytes)), np.uint8).reshape(-1, width)
    d = tensor.shape[-1] ** -0.5 / _SPREAD_OF_SCALE
    blocks[:, :4] = np.array([d, d * _MINIMA_OF_SCALES], np.float16).view(np.uint8)
    return blocks
