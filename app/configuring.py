"""From settings to what each part is told: the one place where wishes meet this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.events import Notice
from app.paths import AppPaths
from app.settings import Settings
from app.store.kv_store import KVStore, default_budget
from engine.config import EngineConfig, KVCodec


def kv_path(settings: Settings, paths: AppPaths) -> Path:
    """Return where the stored states lie."""
    folder = settings.store_folder
    return Path(folder).expanduser() / paths.kv.name if folder else paths.kv


def cold_budget(settings: Settings, paths: AppPaths) -> int:
    """Return how many bytes kv.db may take."""
    chosen = settings.cold_budget_bytes
    return default_budget(kv_path(settings, paths)) if chosen is None else chosen


def open_kv_store(
    settings: Settings,
    paths: AppPaths,
    *,
    on_notice: Callable[[Notice], None] = lambda notice: None,
) -> KVStore:
    """Open kv.db as the settings want it. Raises: DatabaseError kinds."""
    store = KVStore(kv_path(settings, paths), cold_budget(settings, paths), on_notice=on_notice)
    store.is_keeping = settings.keep_conversations_ready
    store.set_eviction_order(settings.eviction_order)
    return store


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
        warm_budget_bytes=settings.warm_budget_bytes,
        num_threads=settings.num_threads,
        device=settings.device,
        offload_share=settings.offload_share,
        compute=settings.compute,
        kernels=settings.kernels,
        prefill_chunk=settings.prefill_chunk,
        cache_dir=paths.cache,
    )
