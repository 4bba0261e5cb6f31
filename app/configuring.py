"""From settings to what each part is told: the one place where wishes meet this machine."""

from __future__ import annotations

from pathlib import Path

from app.paths import AppPaths
from app.settings import Settings
from app.store.kv_store import default_budget
from engine.config import EngineConfig, KVCodec


def cold_budget(settings: Settings, paths: AppPaths) -> int:
    """Return how many bytes kv.db may take; none when conversations are not kept ready."""
    if not settings.keep_conversations_ready:
        return 0
    chosen = settings.cold_budget_bytes
    return default_budget(paths.data) if chosen is None else chosen


def model_folders(settings: Settings, paths: AppPaths) -> list[Path]:
    """Return the folders of the model library."""
    return [paths.models, *(Path(folder) for folder in settings.model_folders)]


def engine_config(settings: Settings, paths: AppPaths) -> EngineConfig:
    """Translate settings into the engine's configuration."""
    return EngineConfig(
        context_length=settings.context_length,
        block_size=settings.block_size,
        kv_codec=KVCodec(settings.kv_codec),
        hot_budget_bytes=settings.hot_budget_bytes,
        num_threads=settings.num_threads,
        device=settings.device,
        compute=settings.compute,
        kernels=settings.kernels,
        prefill_chunk=settings.prefill_chunk,
        cache_dir=paths.cache,
    )
