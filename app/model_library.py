"""The model files in the user's folders. Headers are read once and remembered.

A file is known by its path, size and time; damaged ones are listed with what is wrong with them.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import EngineError
from engine.model_name import model_name

if TYPE_CHECKING:
    from engine.gguf_file import GGUFFile

_log = logging.getLogger(__name__)

_VERSION = 1
_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model of the library; a split one counts once, by its first part.

    size_bytes: of all parts. quantisation: the type most of the weights have. context_length: the
    trained one. error: why it cannot be used, in plain words; the other fields may be empty then.
    """

    path: str
    name: str
    size_bytes: int
    architecture: str = ""
    quantisation: str = ""
    context_length: int = 0
    num_parameters: int = 0
    has_chat_template: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """Files that make up one model."""

    path: Path
    size_bytes: int
    mtime_ns: int
    num_missing: int = 0

    @property
    def key(self) -> str:
        return f"{self.path}|{self.size_bytes}|{self.mtime_ns}"


class ModelLibrary:
    """Folders with models, and a file that remembers their headers.

    ``entries`` answers at once from memory; ``scan`` reads the disk and is for a background job.
    """

    def __init__(self, folders: Sequence[Path], cache_path: Path) -> None:
        self._folders = tuple(folders)
        self._cache_path = cache_path
        self._lock = threading.Lock()
        self._cache = _load_cache(cache_path)
        self._entries: tuple[ModelEntry, ...] = tuple(sorted(self._cache.values(), key=_sort_key))

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders looked into, subfolders included."""
        return self._folders

    def entries(self) -> tuple[ModelEntry, ...]:
        """Return the models as of the last scan, also of a former run; sorted by name."""
        return self._entries

    def set_folders(self, folders: Sequence[Path]) -> None:
        """Look into other folders from the next scan on."""
        self._folders = tuple(folders)

    def scan(self) -> tuple[ModelEntry, ...]:
        """Look through the folders, read the headers that are new, and return all models."""
        with self._lock:
            return self._scan()

    def _scan(self) -> tuple[ModelEntry, ...]:
        cache = {
            found.key: self._cache.get(found.key) or read_entry(found.path, found)
            for found in _find_models(self._folders)
        }
        if cache != self._cache:
            _save_cache(self._cache_path, cache)
        self._cache = cache
        self._entries = tuple(sorted(cache.values(), key=_sort_key))
        return self._entries

    def entry(self, path: Path) -> ModelEntry:
        """Return one file's entry, in the folders or not."""
        found = _found_around(path)
        return self._cache.get(found.key) or read_entry(found.path, found)


def read_entry(path: Path, found: _Found) -> ModelEntry:
    """Read a model's header; what is wrong with it goes into the entry."""
    # The parser needs numpy, which the window must not wait for.
    from engine.gguf_file import GGUFFile

    if found.num_missing:
        error = f"{found.num_missing} parts of this model are missing."
        return ModelEntry(str(path), model_name(path), found.size_bytes, error=error)
    try:
        file = GGUFFile.open(path)
    except EngineError as error:
        return ModelEntry(str(path), model_name(path), found.size_bytes, error=str(error))
    try:
        return _entry(path, file)
    finally:
        file.close()


def _entry(path: Path, file: GGUFFile) -> ModelEntry:
    architecture = _text(file, "general.architecture")
    length = file.get(f"{architecture}.context_length", 0)
    weights: defaultdict[str, int] = defaultdict(int)
    num_parameters = 0
    for tensor in file.tensors.values():
        weights[tensor.type.name] += tensor.num_bytes
        num_parameters += _product(tensor.shape)
    return ModelEntry(
        path=str(path),
        name=model_name(path),
        size_bytes=file.size_bytes,
        architecture=architecture,
        quantisation=max(weights, key=weights.__getitem__, default=""),
        context_length=length if isinstance(length, int) else 0,
        num_parameters=num_parameters,
        has_chat_template=bool(_text(file, "tokenizer.chat_template")),
        error="" if architecture else "The file does not say what kind of model it holds.",
    )


def _text(file: GGUFFile, key: str) -> str:
    value = file.get(key, "")
    return value if isinstance(value, str) else ""


def _product(shape: Sequence[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _find_models(folders: Sequence[Path]) -> Iterator[_Found]:
    """Yield every model once, in whichever folder it is met first."""
    yield from _group(_gguf_files(folders))


def _siblings(path: Path) -> list[Path]:
    """Return the parts of the model a file belongs to, itself at least."""
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        return [path]
    return sorted(path.parent.glob(f"{glob.escape(split['stem'])}-*-of-{split['count']}.gguf"))


def _found_around(path: Path) -> _Found:
    return next(_group(_siblings(path)), _Found(path, 0, 0))


def _group(paths: Iterable[Path]) -> Iterator[_Found]:
    groups: defaultdict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        split = _SPLIT.fullmatch(path.name)
        first = f"{split['stem']}-00001-of-{split['count']}.gguf" if split else path.name
        groups[path.with_name(first)].append(path)
    for first_part, parts in groups.items():
        try:
            yield _found(first_part, sorted(parts))
        except OSError as error:
            _log.warning("model file vanished: %s", error)


def _gguf_files(folders: Sequence[Path]) -> Iterator[Path]:
    seen: set[Path] = set()
    for folder in folders:
        for place, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if not name.startswith("."))
            for name in sorted(files):
                path = Path(place, name)
                if name.lower().endswith(".gguf") and path not in seen:
                    seen.add(path)
                    yield path


def _found(first: Path, parts: Sequence[Path]) -> _Found:
    status = [part.stat() for part in parts]
    split = _SPLIT.fullmatch(first.name)
    return _Found(
        path=first if first in parts else parts[0],
        size_bytes=sum(item.st_size for item in status),
        mtime_ns=max(item.st_mtime_ns for item in status),
        num_missing=int(split["count"]) - len(parts) if split else 0,
    )


def _sort_key(entry: ModelEntry) -> tuple[str, str]:
    return entry.name.casefold(), entry.path


def _load_cache(path: Path) -> dict[str, ModelEntry]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["version"] != _VERSION:
            return {}
        return {key: _checked(value) for key, value in data["models"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        _log.info("the list of known models is read anew: %s", error)
        return {}


def _checked(value: dict[str, Any]) -> ModelEntry:
    entry = ModelEntry(**value)
    kinds = {"str": str, "int": int, "bool": bool}
    if not all(
        isinstance(getattr(entry, item.name), kinds[str(item.type)]) for item in fields(entry)
    ):
        raise TypeError("a field has another type")
    return entry


def _save_cache(path: Path, cache: dict[str, ModelEntry]) -> None:
    models = {key: asdict(entry) for key, entry in cache.items()}
    temporary = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({"version": _VERSION, "models": models}), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        _log.warning("the list of known models cannot be kept: %s", error)
