"""The house itself: what every fresh clone must have."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

import pytest

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
    extras = project["optional-dependencies"].values()
    wanted = [word for extra in (project["dependencies"], *extras) for word in extra]
    lines = (ROOT / "packaging" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonical(line.split("==")[0]) for line in lines}
    assert {canonical(word.split(">=")[0].split("[")[0]) for word in wanted} - pinned == set()


def test_kernels_are_built_where_a_compiler_is():
    kernels = ROOT / "engine" / "kernels"
    if not (kernels / "libraries.cmake").exists():
        pytest.skip("there are no native kernels yet")
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("no C++ compiler here")
    built = [file for file in kernels.iterdir() if file.suffix in {".so", ".dylib", ".dll"}]
    assert built, "the build failed and the installation fell back to none: pip install -v -e ."


def canonical(name: str) -> str:
    return name.lower().replace("_", "-")


def test_each_test_has_its_own_home(reprise_home: Path):
    assert os.environ["REPRISE_HOME"] == str(reprise_home)
    assert list(reprise_home.iterdir()) == []
