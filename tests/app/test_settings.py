from __future__ import annotations

import logging
from dataclasses import fields, replace

import pytest

from app.errors import SettingsError
from app.settings import Settings, check, needs_reload, rule_of
from app.settings_file import SettingsStore
from engine.config import SamplingParams


@pytest.fixture
def path(tmp_path):
    return tmp_path / "settings.toml"


def test_defaults_are_within_their_ranges():
    check(Settings())
    assert all(str(rule_of(item.name)) for item in fields(Settings))


def test_settings_survive_being_written_and_read(path):
    settings = Settings(
        language="zh_CN",
        zoom=1.25,
        context_length=4096,
        model_folders=("/a", "/b"),
        system_prompt='Say "hi"\n你好',
        sampling=SamplingParams(temperature=0.0, seed=7),
    )
    SettingsStore(path).save(settings)
    assert SettingsStore(path).value == settings


def test_only_what_was_changed_is_in_the_file(path):
    store = SettingsStore(path)
    store.save(replace(store.value, theme="dark"))
    assert path.read_text(encoding="utf-8").strip() == 'theme = "dark"'


def test_comments_and_unknown_keys_survive(path):
    path.write_text('# mine\nfuture = "yes"\nzoom = 2.0 # big\n[sampling]\nodd = 1\n')
    store = SettingsStore(path)
    store.save(replace(store.value, zoom=1.5, theme="dark", sampling=SamplingParams(seed=1)))
    text = path.read_text()
    assert "# mine" in text
    assert "# big" in text
    assert 'future = "yes"' in text
    assert "odd = 1" in text
    assert SettingsStore(path).value == store.value


def test_a_setting_given_back_to_the_program_leaves_the_file(path):
    store = SettingsStore(path)
    store.save(replace(store.value, num_threads=2))
    store.save(replace(store.value, num_threads=None))
    assert "num_threads" not in path.read_text()


@pytest.mark.parametrize(
    "line",
    [
        "zoom = 99.0",
        'zoom = "big"',
        "zoom = nan",
        "enter_sends = 1",
        "block_size = 33",
        "block_size = true",
        'kv_codec = "f8"',
        "context_length = -1",
        'model_folders = "x"',
        "model_folders = [1]",
        "sampling = 3",
        "[sampling]\ntemperature = 9.0",
    ],
)
def test_a_bad_value_falls_back_to_its_default_with_a_warning(path, caplog, line):
    path.write_text(f'theme = "dark"\n{line}\n')
    with caplog.at_level(logging.WARNING):
        store = SettingsStore(path)
    assert store.value == Settings(theme="dark")
    assert len(caplog.records) == 1
    assert line.splitlines()[-1] in path.read_text()


def test_a_file_that_is_not_toml_is_set_aside(path, caplog):
    path.write_text("= nonsense [")
    with caplog.at_level(logging.WARNING):
        assert SettingsStore(path).value == Settings()
    assert path.with_name("settings.toml.damaged").read_text() == "= nonsense ["


def test_a_value_out_of_range_is_refused_and_nothing_is_written(path):
    store = SettingsStore(path)
    with pytest.raises(SettingsError) as caught:
        store.save(replace(store.value, zoom=99.0))
    assert caught.value.name == "zoom"
    assert not path.exists()
    assert store.value == Settings()


def test_listeners_hear_changes_from_inside_and_outside(path):
    store, heard = SettingsStore(path), []
    unsubscribe = store.subscribe(heard.append)
    store.save(replace(store.value, theme="dark"))
    path.write_text('theme = "light"\nzoom = 1.5\n')
    assert store.reload()
    assert not store.reload()
    unsubscribe()
    store.save(replace(store.value, theme="system"))
    assert [settings.theme for settings in heard] == ["dark", "light"]


def test_what_shapes_the_memory_needs_a_reload():
    assert needs_reload("block_size")
    assert not needs_reload("theme")
