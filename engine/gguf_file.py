"""One model file on disk: its metadata, its tensor index, its bytes as a memory map.

Everything a file says is checked against its size before it is believed, so that a damaged or
hostile file ends in a typed error. Knows nothing of models, tokenizers or torch.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import re
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.errors import ModelFileError, UnsupportedModelError
from engine.ggml_type import GGMLType as GGMLType

MetadataScalar = bool | int | float | str
MetadataValue = MetadataScalar | list[MetadataScalar]
_T = TypeVar("_T")
_D = TypeVar("_D")

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_HEADER_BYTES = 1 << 29
_MAX_ARRAY_LENGTH = 1 << 22
_MAX_DIMENSIONS = 4
_MIN_KEY_VALUE_BYTES = 8 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 4 + 4 + 8
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALAR_FORMATS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "B", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies.

    shape: torch order, rows first. offset: bytes from the start of its file. part: index into
    ``GGUFFile.paths``.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int
    num_bytes: int
    part: int = 0


class GGUFFile:
    """A model file, or all parts of a split one, open for reading.

    metadata: that of the first part. tensors: those of all parts.
    paths: the files, in part order. size_bytes: of all of them.
    """

    def __init__(self, parts: list[_Part]) -> None:
        """Join parts that were read and checked; see open()."""
        self._metadata = parts[0].metadata
        self.metadata: Mapping[str, MetadataValue] = MappingProxyType(self._metadata)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(_join_tensors(parts))
        self.paths: tuple[Path, ...] = tuple(part.path for part in parts)
        self.size_bytes = sum(part.size for part in parts)
        self._buffers = [part.buffer for part in parts]
        self._maps: list[NDArray[np.uint8]] = [
            np.frombuffer(buffer, dtype=np.uint8) for buffer in self._buffers
        ]

    @classmethod
    def open(cls, path: Path) -> GGUFFile:
        """Open a file; any part of a split model opens all of it.

        Raises: ModelFileError, UnsupportedModelError.
        """
        part = _read_part(path, 0)
        count = part.split_value("split.count", 1)
        if count <= 1:
            return cls([part])
        first, *others = _part_paths(path, count)
        parts = [_read_part(first, 0)]
        parts += [_read_part(other, number) for number, other in enumerate(others, start=1)]
        _check_split(parts, count)
        return cls(parts)

    def data(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a tensor: read-only, memory-mapped, valid after close().

        Raises: ModelFileError when the file has no such tensor.
        """
        info = self.tensors.get(name)
        if info is None:
            raise ModelFileError("A part of the model is missing in the file.", detail=name)
        return self._maps[info.part][info.offset : info.offset + info.num_bytes]

    def get(self, key: str, default: _D) -> MetadataValue | _D:
        """Return a metadata value, or the default."""
        return self.metadata.get(key, default)

    def require(self, key: str, value_type: type[_T]) -> _T:
        """Return a metadata value of this type (int is taken for float).

        Raises: ModelFileError naming the key when it is missing or of another type.
        """
        value = self.metadata.get(key)
        if value_type is float and type(value) is int:
            value = float(value)
        if not isinstance(value, value_type) or (value_type is int and isinstance(value, bool)):
            raise ModelFileError(
                "The model file lacks a setting that is needed to run it.",
                detail=f"{key}: expected {value_type.__name__}, found {type(value).__name__}",
            )
        return value

    def release_pages(self, name: str | None = None) -> None:
        """Let go of the memory of what was read, of one tensor or of all.

        Reading it again fetches it from the file.
        """
        if sys.platform == "win32":  # there, the system trims a mapping on its own
            return
        if name is None:
            for buffer in self._buffers:
                buffer.madvise(mmap.MADV_DONTNEED)
            return
        info = self.tensors[name]
        before = info.offset % mmap.PAGESIZE
        self._buffers[info.part].madvise(
            mmap.MADV_DONTNEED, info.offset - before, info.num_bytes + before
        )

    def forget(self, key: str) -> None:
        """Drop a metadata value that nobody will ask for again."""
        self._metadata.pop(key, None)

    def close(self) -> None:
        """Give the files back once the last array from data() is gone."""
        self._maps.clear()
        self._buffers.clear()


class _Part:
    """One file of a model, its header parsed."""

    def __init__(self, path: Path, buffer: mmap.mmap, number: int) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        cursor = _Cursor(buffer, path.name)
        num_tensors, num_values = _read_counts(cursor)
        self.metadata = _read_metadata(cursor, num_values)
        alignment = _alignment(self.metadata, cursor)
        self.tensors = _read_tensors(cursor, num_tensors, alignment, number)

    def split_value(self, key: str, default: int) -> int:
        """Return a number that describes the splitting."""
        value = self.metadata.get(key, default)
        if not isinstance(value, int) or not 0 <= value < 100_000:
            raise ModelFileError("The model file is damaged.", detail=f"{self.path.name}: {key}")
        return value


class _Cursor:
    """Reads little-endian values one after the other and never past the end."""

    def __init__(self, buffer: mmap.mmap, name: str) -> None:
        self.buffer = buffer
        self.name = name
        self.file_size = len(buffer)
        self.end = min(self.file_size, _MAX_HEADER_BYTES)
        self.position = 0

    def fail(self, reason: str, position: int | None = None) -> ModelFileError:
        """Build the error for what is wrong at this place."""
        offset = self.position if position is None else position
        return ModelFileError(
            "The model file is damaged or incomplete.",
            detail=f"{self.name}: {reason} at offset {offset}",
        )

    def claim(self, num_bytes: int) -> int:
        """Move past bytes and return where they began."""
        start = self.position
        if num_bytes > self.end - start:
            raise self.fail(f"{num_bytes} bytes needed, the header ends")
        self.position = start + num_bytes
        return start

    def scalar(self, code: str) -> int | float:
        """Read one number. code: a struct format letter."""
        layout = struct.Struct("<" + code)
        value: int | float = layout.unpack_from(self.buffer, self.claim(layout.size))[0]
        return value

    def integer(self, code: str) -> int:
        """Read one whole number."""
        return int(self.scalar(code))

    def string(self) -> str:
        """Read one length-prefixed string."""
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """Read strings in a row; a flat loop, since vocabularies hold a quarter million."""
        buffer, position, end = self.buffer, self.position, self.end
        length_at = struct.Struct("<Q").unpack_from
        result: list[str] = []
        try:
            for _ in range(count):
                start = position + 8
                stop = start + length_at(buffer, position)[0]
                if stop > end:
                    raise self.fail("a string longer than the header", position)
                result.append(str(buffer[start:stop], "utf-8"))
                position = stop
        except struct.error:
            raise self.fail("a string is cut off", position) from None
        except UnicodeDecodeError:
            raise self.fail("a string is not UTF-8", position) from None
        self.position = position
        return result

    def numbers(self, count: int, code: str) -> list[MetadataScalar]:
        """Read numbers in a row."""
        layout = np.dtype("<" + code)
        start = self.claim(count * layout.itemsize)
        values: list[MetadataScalar] = np.frombuffer(self.buffer, layout, count, start).tolist()
        return values


def _read_part(path: Path, number: int) -> _Part:
    try:
        if path.exists() and not path.is_file():
            raise ModelFileError("This is not a file.", detail=path.name)
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ModelFileError("The model file is empty.", detail=f"{path.name}: offset 0")
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelFileError("The model file cannot be opened.", detail=str(error)) from error
    return _Part(path, buffer, number)


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    """Check magic and version; return the numbers of tensors and of metadata values."""
    if cursor.buffer[: len(_MAGIC)] != _MAGIC:
        raise ModelFileError(
            "This is not a GGUF model file.", detail=f"{cursor.name}: no GGUF magic at offset 0"
        )
    cursor.claim(len(_MAGIC))
    _check_version(cursor.integer("I"), cursor.name)
    num_tensors, num_values = cursor.integer("Q"), cursor.integer("Q")
    room = cursor.end - cursor.position
    if num_values * _MIN_KEY_VALUE_BYTES + num_tensors * _MIN_TENSOR_BYTES > room:
        raise cursor.fail(f"{num_tensors} tensors and {num_values} values cannot fit", 8)
    return num_tensors, num_values


def _check_version(version: int, name: str) -> None:
    if version in _VERSIONS:
        return
    detail = f"{name}: version {version:#x} at offset 4"
    if version and version & 0xFFFF == 0:
        raise ModelFileError("The model file was made for big-endian computers.", detail=detail)
    raise ModelFileError("The model file has an unknown GGUF version.", detail=detail)


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for _ in range(count):
        start = cursor.position
        key = cursor.string()
        if key in metadata:
            raise cursor.fail(f"key {key[:80]!r} appears twice", start)
        metadata[key] = _read_value(cursor, cursor.integer("I"), key)
    return metadata


def _read_value(cursor: _Cursor, value_type: int, key: str) -> MetadataValue:
    if value_type == _STRING:
        return cursor.string()
    if value_type == _ARRAY:
        return _read_array(cursor, key)
    value = cursor.scalar(_scalar_format(cursor, value_type, key))
    return bool(value) if value_type == _BOOL else value


def _read_array(cursor: _Cursor, key: str) -> list[MetadataScalar]:
    start = cursor.position
    value_type, count = cursor.integer("I"), cursor.integer("Q")
    if count > _MAX_ARRAY_LENGTH:
        raise cursor.fail(f"{count} values in key {key[:80]!r}", start)
    if value_type == _STRING:
        return [*cursor.strings(count)]
    values = cursor.numbers(count, _scalar_format(cursor, value_type, key))
    return [bool(value) for value in values] if value_type == _BOOL else values


def _scalar_format(cursor: _Cursor, value_type: int, key: str) -> str:
    code = _SCALAR_FORMATS.get(value_type)
    if code is None:
        raise cursor.fail(f"unknown value type {value_type} of key {key[:80]!r}")
    return code


def _alignment(metadata: Mapping[str, MetadataValue], cursor: _Cursor) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or value < 1 or value & (value - 1) or value > _MAX_HEADER_BYTES:
        raise cursor.fail(f"general.alignment is {str(value)[:40]}")
    return value


def _read_tensors(cursor: _Cursor, count: int, alignment: int, part: int) -> dict[str, TensorInfo]:
    entries = [(cursor.position, _read_tensor(cursor, part)) for _ in range(count)]
    data_start = -(-cursor.position // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for position, info in entries:
        if info.name in tensors:
            raise cursor.fail(f"tensor {info.name[:80]!r} appears twice", position)
        tensors[info.name] = _place(info, data_start, alignment, cursor)
    return tensors


def _read_tensor(cursor: _Cursor, part: int) -> TensorInfo:
    """Read one index entry; its offset still counts from the start of the tensor data."""
    start = cursor.position
    name = cursor.string()
    num_dimensions = cursor.integer("I")
    if num_dimensions > _MAX_DIMENSIONS:
        raise cursor.fail(f"tensor {name[:80]!r} has {num_dimensions} dimensions", start)
    shape = tuple(cursor.integer("Q") for _ in range(num_dimensions))[::-1] or (1,)
    type_number, offset = cursor.integer("I"), cursor.integer("Q")
    try:
        ggml_type = GGMLType(type_number)
    except ValueError:
        raise UnsupportedModelError(
            "The model uses a number format that is not supported.",
            detail=f"{cursor.name}: tensor {name[:80]!r} has type {type_number}, offset {start}",
        ) from None
    if shape[-1] % ggml_type.block_elements:
        raise cursor.fail(f"tensor {name[:80]!r}: rows of {shape[-1]} in {ggml_type.name}", start)
    num_bytes = math.prod(shape) // ggml_type.block_elements * ggml_type.block_bytes
    return TensorInfo(name, shape, ggml_type, offset, num_bytes, part)


def _place(info: TensorInfo, data_start: int, alignment: int, cursor: _Cursor) -> TensorInfo:
    """Turn the offset into one from the start of the file, and check that the file holds it."""
    offset = data_start + info.offset
    if info.offset % alignment:
        raise cursor.fail(f"tensor {info.name[:80]!r} is not aligned", offset)
    if offset + info.num_bytes > cursor.file_size:
        raise cursor.fail(f"tensor {info.name[:80]!r} ends beyond the file", offset)
    return TensorInfo(info.name, info.shape, info.type, offset, info.num_bytes, info.part)


def _part_paths(path: Path, count: int) -> list[Path]:
    match = _SPLIT_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise ModelFileError(
            "This is one part of a model whose other parts cannot be found by its name.",
            detail=f"{path.name}: split.count is {count}",
        )
    return [
        path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf")
        for number in range(1, count + 1)
    ]


def _check_split(parts: list[_Part], count: int) -> None:
    for number, part in enumerate(parts):
        if part.split_value("split.count", 1) != count or part.split_value("split.no", 0) != number:
            raise ModelFileError(
                "The parts of this model do not belong together.",
                detail=f"{part.path.name}: split.no or split.count",
            )
    expected = parts[0].metadata.get("split.tensors.count")
    found = sum(len(part.tensors) for part in parts)
    if expected is not None and expected != found:
        raise ModelFileError(
            "The parts of this model do not belong together.",
            detail=f"split.tensors.count is {str(expected)[:40]}, found {found}",
        )


def _join_tensors(parts: list[_Part]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        for name, info in part.tensors.items():
            if name in tensors:
                raise ModelFileError(
                    "The parts of this model do not belong together.",
                    detail=f"{part.path.name}: tensor {name[:80]!r} appears twice",
                )
            tensors[name] = info
    return tensors
