"""Where everything lies on disk. REPRISE_HOME moves it all into one folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from platformdirs import PlatformDirs

from app.errors import HomeUnusableError

HOME_VARIABLE = "REPRISE_HOME"


@dataclass(frozen=True, slots=True)
class AppPaths:
    """The folders of one home. Nothing is created before ``create``."""

    data: Path
    config: Path
    logs: Path

    @property
    def chats(self) -> Path:
        """The conversations: the truth."""
        return self.data / "chats.db"

    @property
    def kv(self) -> Path:
        """The stored states: derived, disposable."""
        return self.data / "kv.db"

    @property
    def models(self) -> Path:
        """Where downloaded models go."""
        return self.data / "models"

    @property
    def cache(self) -> Path:
        """What can be computed again: headers of model files, measured choices."""
        return self.data / "cache"

    @property
    def model_headers(self) -> Path:
        """What the model library remembers of the files it has read."""
        return self.cache / "models.json"

    @property
    def synthetic_models(self) -> Path:
        """Where benchmarks write the models that they make up."""
        return self.cache / "models"

    @property
    def codecs(self) -> Path:
        """What was measured of the K/V formats, by model."""
        return self.cache / "codecs.json"

    @property
    def settings(self) -> Path:
        """What the user chose."""
        return self.config / "settings.toml"

    @property
    def state(self) -> Path:
        """Geometry of the window."""
        return self.config / "state.ini"

    def create(self) -> None:
        """Create the folders that are missing. Raises: HomeUnusableError."""
        for folder in (self.data, self.config, self.logs, self.models, self.cache):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise HomeUnusableError(
                    f"The folder {folder} cannot be used: {error.strerror}.", detail=str(error)
                ) from error


def app_paths(home: Path | None = None) -> AppPaths:
    """Return the folders: below home, below REPRISE_HOME, or where the system wants them."""
    root = home or (Path(value).expanduser() if (value := os.environ.get(HOME_VARIABLE)) else None)
    if root is not None:
        root = root.absolute()
        return AppPaths(data=root, config=root, logs=root / "logs")
    dirs = PlatformDirs("Reprise", appauthor=False)
    return AppPaths(
        data=Path(dirs.user_data_dir),
        config=Path(dirs.user_config_dir),
        logs=Path(dirs.user_log_dir),
    )
