from __future__ import annotations

import os

import numpy as np
import pytest

from app.model_library import ModelLibrary


def write_model(path, *, name="Tiny", length=512):
    gguf = pytest.importorskip("gguf")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(length)
    writer.add_chat_template("{{ messages }}")
    writer.add_tensor("token_embd.weight", np.zeros((32, 8), dtype=np.float16))
    writer.add_tensor("output_norm.weight", np.zeros(8, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def library(tmp_path):
    return ModelLibrary([tmp_path / "models"], tmp_path / "cache" / "models.json")


def test_models_in_subfolders_are_listed_with_their_headers(tmp_path, library):
    path = write_model(tmp_path / "models" / "deep" / "er" / "a.gguf")
    (entry,) = library.scan()
    assert entry.path == str(path)
    assert (entry.name, entry.architecture, entry.context_length) == ("a", "llama", 512)
    assert (entry.quantisation, entry.num_parameters) == ("F16", 32 * 8 + 8)
    assert entry.has_chat_template
    assert entry.error == ""


def test_a_damaged_file_is_listed_with_its_error(tmp_path, library):
    path = write_model(tmp_path / "models" / "a.gguf")
    path.write_bytes(path.read_bytes()[:60])
    (entry,) = library.scan()
    assert entry.name == "a"
    assert entry.error


def test_the_parts_of_a_split_model_are_one_entry(tmp_path, library):
    for number in (1, 2):
        write_model(tmp_path / "models" / f"big-{number:05}-of-00003.gguf")
    (entry,) = library.scan()
    assert entry.path.endswith("big-00001-of-00003.gguf")
    assert entry.error == "1 parts of this model are missing."


def test_a_header_is_read_once_until_the_file_changes(tmp_path, library, monkeypatch):
    path = write_model(tmp_path / "models" / "a.gguf")
    (before,) = library.scan()
    again = ModelLibrary(library.folders, tmp_path / "cache" / "models.json")
    assert again.entries() == (before,)
    with monkeypatch.context() as patch:
        patch.setattr("app.model_library.read_entry", lambda path, found: 1 / 0)
        assert again.scan() == (before,)
    write_model(path, length=256)
    os.utime(path, ns=(1, 1))
    assert again.scan()[0].context_length == 256


def test_a_damaged_cache_is_read_anew(tmp_path, library):
    write_model(tmp_path / "models" / "a.gguf")
    cache = tmp_path / "cache" / "models.json"
    for text in ("", "[]", '{"version": 1, "models": {"x": {"path": 1}}}', '{"version": 99}'):
        cache.parent.mkdir(exist_ok=True)
        cache.write_text(text)
        again = ModelLibrary(library.folders, cache)
        assert again.entries() == ()
        assert len(again.scan()) == 1


def test_a_missing_folder_is_an_empty_one(tmp_path):
    assert ModelLibrary([tmp_path / "nowhere"], tmp_path / "c.json").scan() == ()


def test_a_file_outside_the_folders_can_be_asked_for(tmp_path, library):
    path = write_model(tmp_path / "elsewhere" / "b.gguf")
    assert library.entry(path).context_length == 512
    assert library.entry(tmp_path / "missing.gguf").error
