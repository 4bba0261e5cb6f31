"""``reprise doctor``: what runs here, what was chosen, and whether the databases are sound."""

from __future__ import annotations

import json
import platform
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from app.bench.report import cpu_name
from app.commands import shared
from app.configuring import open_kv_store
from app.paths import AppPaths, app_paths
from app.settings_file import SettingsStore
from app.store.chat_store import ChatStore

if TYPE_CHECKING:
    from engine.kernels import KernelInfo


def doctor(arguments: Namespace) -> int:
    """Print what was found; the exit code is 1 when a database is damaged."""
    paths = app_paths()
    paths.create()
    findings = {**_machine(paths), **_databases(paths)}
    if arguments.json:
        print(json.dumps(findings, ensure_ascii=False))
    else:
        for name, value in findings.items():
            print(f"{name:<18} {value}")
    return int(any(findings[name] != "ok" for name in ("chats.db", "kv.db")))


def _machine(paths: AppPaths) -> dict[str, Any]:
    import torch

    from engine.device import choose_threads, find_accelerator, free_memory_bytes
    from engine.kernels import available
    from engine.quant.choose import choose_compute

    threads = choose_threads(None)
    torch.set_num_threads(threads)
    compute = choose_compute("auto", "cpu", paths.cache)
    return {
        "processor": cpu_name(),
        "threads": threads,
        "free memory": f"{free_memory_bytes() / 1e9:.1f} GB",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch computes in": str(compute.dtype).removeprefix("torch."),
        "native kernels": _kernels(available()),
        "accelerator": str(find_accelerator("auto") or "none"),
        "home": str(paths.data),
        "models": str(paths.models),
    }


def _kernels(info: KernelInfo | None) -> str:
    return "none" if info is None else f"{info.isa}, {info.lanes} floats at once, {info.path.name}"


def _databases(paths: AppPaths) -> dict[str, str]:
    chats = ChatStore(paths.chats)
    faults = chats.check()
    chats.close()
    kv = open_kv_store(SettingsStore(paths.settings).value, paths)
    damaged = kv.verify().num_damaged
    there = str(shared.report(kv))
    kv.close()
    return {
        "chats.db": "ok" if not faults else "; ".join(faults),
        "kv.db": "ok" if not damaged else f"{damaged} damaged blocks",
        "shared store": there,
    }
