"""``reprise doctor``: what runs here, and damage that ends in exit code 1."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from app.cli import run
from app.paths import app_paths
from app.store.kv_store import KVStore
from engine.kernels import KernelInfo
from tests.app.store.kv_samples import chain, job
from tests.app.waiting import WAIT_S


def doctor(*arguments: str) -> int:
    return run(["doctor", *arguments], open_window=lambda files: pytest.fail("a window"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, reprise_home) -> None:
    """Nothing is measured, and torch keeps its threads."""
    monkeypatch.setattr(
        "engine.quant.choose.choose_compute", lambda *_: SimpleNamespace(dtype=torch.float32)
    )
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    app_paths().create()


@pytest.mark.parametrize(
    ("found", "said"),
    [(None, "none"), (KernelInfo("avx2", 8, app_paths().data / "libx.so"), "avx2, 8 floats")],
)
def test_it_says_what_runs_here(capsys, monkeypatch, found, said):
    monkeypatch.setattr("engine.kernels.available", lambda: found)
    assert doctor("--json") == 0
    findings = json.loads(capsys.readouterr().out)
    assert findings["native kernels"].startswith(said)
    assert findings["torch computes in"] == "float32"
    assert (findings["chats.db"], findings["kv.db"]) == ("ok", "ok")
    assert doctor() == 0
    assert "native kernels" in capsys.readouterr().out


def test_damage_ends_in_an_error(capsys):
    kv = KVStore(app_paths().kv, 64 << 20)
    broken = [block for block in chain("a", 2)]
    kv.submit(job("c", broken))
    assert kv.flush(WAIT_S)
    with kv._database.writing() as connection:
        connection.exec_driver_sql("UPDATE payloads SET payload = zeroblob(10) WHERE id = 1")
    kv.close()
    assert doctor() == 1
    assert "1 damaged blocks" in capsys.readouterr().out
