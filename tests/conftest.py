"""What every test gets: its own home folder, no window on the screen, no thread left behind."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

ROOT = Path(__file__).resolve().parents[1]
# Of a machine that has much else to do; a thread that ends at once is not waited for.
THREAD_GRACE_S = 60.0
# Threads of others that end with the process: tqdm's monitor, Qt's own seen through Python.
FOREIGN_THREADS = ("TMonitor", "Dummy-")

hypothesis.settings.register_profile(
    "reprise",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("reprise")


def load_bootstrap() -> ModuleType:
    """Import packaging/bootstrap.py by path: its folder must not hide the package `packaging`."""
    name = "reprise_bootstrap"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "packaging" / "bootstrap.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def bootstrap() -> ModuleType:
    """packaging/bootstrap.py as a module."""
    return load_bootstrap()


@pytest.fixture(scope="session")
def smollm2_path(bootstrap: ModuleType) -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    return present(bootstrap.fetch_starter(bootstrap.TEST_MODELS))


@pytest.fixture(scope="session")
def gemma3_path(bootstrap: ModuleType) -> Path:
    """Gemma 3 270M, Q4_K_M."""
    return present(bootstrap.fetch_gemma(bootstrap.TEST_MODELS))


def present(model: Path | None) -> Path:
    """Return the model, or skip where it cannot be had."""
    if model is None:
        pytest.skip("the model cannot be downloaded (no network?)")
    return model


@pytest.fixture(autouse=True)
def reprise_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of this test alone."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("REPRISE_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def no_leaked_threads() -> Iterator[None]:
    """Fail a test that leaves a thread running."""
    before = set(threading.enumerate())
    yield
    leaked = wait_for_end(before)
    assert not leaked, f"threads left running: {sorted(thread.name for thread in leaked)}"


def wait_for_end(before: set[threading.Thread]) -> list[threading.Thread]:
    """Return the threads that are new since `before` and do not end within the grace time."""
    deadline = time.monotonic() + THREAD_GRACE_S
    while leaked := new_threads(before):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return leaked


def new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Return our own threads that were not there before."""
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and not thread.name.startswith(FOREIGN_THREADS)
    ]
