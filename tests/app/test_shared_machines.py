"""Several machines, each with a home of its own, and one PostgreSQL server between them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.conversation import Role
from app.events import ReplyFinished
from tests.app.machine import Machine, machine
from tests.engine.tiny_models import write_tiny_model

SETTINGS = {"block_size": 16, "kv_codec": "f32", "kernels": False, "compute": "float32"}
FIRST = "My harbour has seven boats and each of them has a name. " * 4
SECOND = "Which of the boats is the oldest one, and who has built it?"
THIRD = "And what is its name?"


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def open_machine(home: Path, url: str, model: Path):
    return machine(home, url, **SETTINGS)


def talk(one: Machine, *texts: str) -> str:
    """Hold a new conversation and return its id."""
    conversation = one.services.chat.new_conversation()
    for text in texts:
        one.say(conversation.id, text)
    return conversation.id


def cost(finished: ReplyFinished) -> tuple[int, tuple[int, ...]]:
    """Return how many tokens were read anew, and the reply's tokens."""
    assert finished.message.stats is not None
    return finished.message.stats.usage.recomputed_tokens, finished.token_ids


def test_another_machine_goes_on_as_if_it_were_the_first(shared_url, tmp_path, model):
    with open_machine(tmp_path / "a", shared_url, model) as first:
        first.load(model)
        conversation = talk(first, FIRST, SECOND)
        first.settle()
    shutil.copytree(tmp_path / "a", tmp_path / "alone")
    with open_machine(tmp_path / "alone", "", model) as alone:
        alone.load(model)
        expected = cost(alone.say(conversation, THIRD))
    with open_machine(tmp_path / "b", shared_url, model) as second:
        second.load(model)
        second.bring(conversation)
        assert second.services.kv.num_blocks() == 0
        said = [(m.role, m.content) for m in second.services.chat.path(conversation)]
        assert [content for role, content in said if role is Role.USER] == [FIRST, SECOND]
        found = second.say(conversation, THIRD)
        assert cost(found) == expected
        assert found.message.stats.usage.reused.cold > 300
        second.settle()
        assert second.services.kv.num_blocks() > 0
    assert expected[0] < 64
