"""Models of any size without a download: Llama shapes with random Q4_K weights.

They say nothing sensible; how fast they are read does not depend on that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.bench.gguf_writer import TensorPlan, Value, file_bytes, write_gguf
from app.errors import AppError
from engine.ggml_type import GGMLType

# Quarters, scales and minima of a Q4_K block are random: this makes weights of mean 0 and 258 d.
_MINIMA_OF_SCALES = 7.5
_SPREAD_OF_SCALE = 258.0
_SPARE_BYTES = 256 << 20
_UNKNOWN, _CONTROL, _NORMAL, _BYTE = 2, 3, 1, 6


class SyntheticModelError(AppError):
    """The model cannot be written: the disk is full, or refuses."""


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

    Raises: SyntheticModelError when the disk is full or refuses.
    """
    metadata, tensors = _metadata(shape), _tensors(shape)
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_room(path.parent, file_bytes(metadata, tensors))
        with unfinished.open("wb") as out:
            write_gguf(out, metadata, tensors, _contents(tensors))
        unfinished.replace(path)
    except OSError as error:
        raise SyntheticModelError(
            "The synthetic model cannot be written.", detail=str(error)
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _check_room(folder: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < num_bytes + _SPARE_BYTES:
        raise SyntheticModelError(
            "There is not enough room on the disk for the synthetic model.",
            detail=f"{folder}: {num_bytes >> 20} MiB are needed, {free >> 20} MiB are free",
        )


def _metadata(shape: Shape) -> dict[str, Value]:
    return {
        "general.architecture": "llama",
        "general.name": "synthetic",
        "llama.block_count": shape.num_layers,
        "llama.context_length": shape.context_length,
        "llama.embedding_length": shape.hidden_size,
        "llama.feed_forward_length": shape.intermediate_size,
        "llama.attention.head_count": shape.num_heads,
        "llama.attention.head_count_kv": shape.num_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 500000.0,
        "llama.rope.dimension_count": shape.head_dim,
        "llama.vocab_size": shape.vocab_size,
        **_vocabulary(shape.vocab_size),
    }


def _vocabulary(size: int) -> dict[str, Value]:
    """Return a SentencePiece vocabulary of bytes, and words that no text contains."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256]
    tokens += [f"\u2581{number}" for number in range(len(tokens), size)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * size,
        "tokenizer.ggml.token_type": kinds + [_NORMAL] * (size - len(kinds)),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }


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


def _contents(tensors: Sequence[TensorPlan]) -> Iterator[bytes]:
    random = np.random.default_rng(0)
    for tensor in tensors:
        if tensor.type is GGMLType.F32:
            yield np.ones(tensor.shape, np.float32).tobytes()
        else:
            yield _random_blocks(random, tensor)


def _random_blocks(random: np.random.Generator, tensor: TensorPlan) -> bytes:
    """Return Q4_K blocks whose products keep the size of what they are multiplied with."""
    width = tensor.type.block_bytes
    blocks = np.frombuffer(bytearray(random.bytes(tensor.num_bytes)), np.uint8).reshape(-1, width)
    d = tensor.shape[-1] ** -0.5 / _SPREAD_OF_SCALE
    blocks[:, :4] = np.array([d, d * _MINIMA_OF_SCALES], np.float16).view(np.uint8)
    return blocks.tobytes()
