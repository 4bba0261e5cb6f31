"""The house itself: what every fresh clone must have."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from tests.reference import ROOT

ALLOWED_AT_TOP = {
    "LICENSE",
    "Makefile",
    "README.md",
    "app",
    "build",
    "engine",
    "packaging",
    "pyproject.toml",
    "resources",
    "tests",
    "ui",
}


def test_top_level_holds_only_what_the_architecture_names():
    found = {entry.name for entry in ROOT.iterdir() if not entry.name.startswith(".")}
    assert found - ALLOWED_AT_TOP - {"dist", "shared"} == set()


def test_packaging_folder_does_not_hide_the_package_of_that_name():
    assert not (ROOT / "packaging" / "__init__.py").exists()


def test_every_dependency_is_constrained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    lines = (ROOT / "packaging" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonical(line.split("==")[0]) for line in lines}
    assert {canonical(word.split(">=")[0]) for word in wanted} - pinned == set()


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def test_each_test_has_its_own_home(reprise_home: Path):
    assert os.environ["REPRISE_HOME"] == str(reprise_home)
    assert list(reprise_home.iterdir()) == []
