"""A disk that is really full, where this may mount a small one: conversations work as before."""

from __future__ import annotations

import queue
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.conversation import MessageStatus
from app.events import AppEvent, ModelLoaded, Notice, ReplyFinished
from app.paths import app_paths
from app.services import Services
from tests.app.waiting import WAIT_S
from tests.engine.tiny_models import write_tiny_model

DISK_BYTES = 128 << 20
# Less than the store leaves for conversations, enough for those.
LEFT_BYTES = 6_000_000


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder on a disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux":
        pytest.skip("needs a tmpfs")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a disk")
    monkeypatch.setenv("REPRISE_HOME", str(folder))
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Chat:
    """One conversation over a real engine; events of the application in order."""

    def __init__(self, model: Path) -> None:
        self.services = Services(app_paths())
        self.services.settings.update(max_tokens=16, block_size=16, hot_budget_bytes=16 << 20)
        self.notices: list[Notice] = []
        self._events: queue.SimpleQueue[AppEvent] = queue.SimpleQueue()
        self.services.subscribe(self._events.put)
        self.services.worker.load_model(model)
        self.wait_for(ModelLoaded)
        self.conversation = self.services.chats.create_conversation()

    def wait_for(self, kind: type[AppEvent]) -> AppEvent:
        while True:
            event = self._events.get(timeout=WAIT_S)
            if isinstance(event, Notice):
                self.notices.append(event)
            if isinstance(event, kind):
                return event

    def say(self, text: str) -> None:
        """Send a message and check that it and its reply are saved."""
        _, reply = self.services.chat.send(self.conversation.id, text)
        finished = self.wait_for(ReplyFinished)
        assert isinstance(finished, ReplyFinished)
        assert finished.error is None
        *_, asked, answered = self.services.chats.path(self.conversation.id)
        assert asked.content == text
        assert answered.id == reply.id
        assert answered.status in (MessageStatus.COMPLETE, MessageStatus.LENGTH)
        assert self.services.kv.flush(WAIT_S)


def test_with_a_full_disk_conversations_work_and_say_what_is_not_kept(small_disk, tmp_path):
    model = write_tiny_model(tmp_path / "tiny.gguf")
    chat = Chat(model)
    chat.say("Hello there, how are you today?")
    assert chat.services.kv.bytes_written > 0
    assert chat.services.kv.problem == ""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (shutil.disk_usage(small_disk).free - LEFT_BYTES))
    kept = chat.services.kv.bytes_written
    for number in range(3):
        chat.say(f"Tell me more, for the {number}. time.")
    assert chat.services.kv.bytes_written == kept
    assert "full" in chat.services.kv.problem
    if not chat.notices:
        chat.wait_for(Notice)
    assert [notice.kind for notice in chat.notices] == ["kv_not_kept"]
    assert "not being kept" in chat.notices[0].message
    ballast.unlink()
    chat.say("Is there room again?")
    assert chat.services.kv.problem == ""
    assert chat.services.kv.bytes_written > kept
    assert chat.services.close(WAIT_S)
