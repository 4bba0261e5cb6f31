from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import HomeUnusableError
from app.paths import app_paths


def test_the_home_variable_moves_everything(monkeypatch, tmp_path):
    monkeypatch.setenv("REPRISE_HOME", str(tmp_path / "home"))
    paths = app_paths()
    places = (paths.chats, paths.kv, paths.models, paths.cache, paths.settings, paths.state)
    assert all(place.is_relative_to(tmp_path / "home") for place in (*places, paths.logs))
    assert not paths.data.exists()
    paths.create()
    assert paths.models.is_dir()


def test_without_it_the_system_says_where(monkeypatch):
    monkeypatch.delenv("REPRISE_HOME")
    assert "reprise" in str(app_paths().data).lower()
    assert app_paths(Path("/x")).chats == Path("/x/chats.db").absolute()


def test_a_home_that_cannot_be_made_is_an_error_in_plain_words(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(HomeUnusableError, match="cannot be used"):
        app_paths(file / "home").create()
