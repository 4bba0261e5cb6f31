"""Writes a GGUF file value by value and tensor by tensor; knows nothing of models.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import BinaryIO

from engine.ggml_type import GGMLType

Value = int | float | str | Sequence[int] | Sequence[float] | Sequence[str]

_MAGIC, _VERSION, _ALIGNMENT = b"GGUF", 3, 32
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9


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


def file_bytes(metadata: Mapping[str, Value], tensors: Sequence[TensorPlan]) -> int:
    """Return the size that ``write_gguf`` makes of these."""
    return len(_header(metadata, tensors)) + sum(_padded(t.num_bytes) for t in tensors)


def write_gguf(
    out: BinaryIO,
    metadata: Mapping[str, Value],
    tensors: Sequence[TensorPlan],
    contents: Iterable[bytes],
) -> None:
    """Write a file. contents: the bytes of each tensor, in order; they are asked for one by one.

    Raises: OSError.
    """
    out.write(_header(metadata, tensors))
    for tensor, content in zip(tensors, contents, strict=True):
        assert len(content) == tensor.num_bytes
        out.write(content)
        out.write(bytes(_padded(len(content)) - len(content)))


def _header(metadata: Mapping[str, Value], tensors: Sequence[TensorPlan]) -> bytes:
    parts = [_MAGIC, struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_text(key), _typed(value)]
    offset = 0
    for tensor in tensors:
        parts.append(_entry(tensor, offset))
        offset += _padded(tensor.num_bytes)
    header = b"".join(parts)
    return header.ljust(_padded(len(header)), b"\0")


def _entry(tensor: TensorPlan, offset: int) -> bytes:
    sizes = tensor.shape[::-1]
    layout = f"<I{len(sizes)}QIQ"
    packed = struct.pack(layout, len(sizes), *sizes, int(tensor.type), offset)
    return _text(tensor.name) + packed


def _typed(value: Value) -> bytes:
    """Return a value behind the number of its type."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, int | float):
        kind, packed = _number(value)
        return struct.pack("<I", kind) + packed
    head = struct.pack("<II", _ARRAY, _kind(value[0]))
    return head + struct.pack("<Q", len(value)) + b"".join(map(_element, value))


def _kind(element: int | float | str) -> int:
    if isinstance(element, str):
        return _STRING
    return _INT32 if isinstance(element, int) else _FLOAT32


def _element(element: int | float | str) -> bytes:
    if isinstance(element, str):
        return _text(element)
    return struct.pack("<i" if isinstance(element, int) else "<f", element)


def _number(value: int | float) -> tuple[int, bytes]:
    if isinstance(value, int):
        return _UINT32, struct.pack("<I", value)
    return _FLOAT32, struct.pack("<f", value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(num_bytes: int) -> int:
    return num_bytes + -num_bytes % _ALIGNMENT
