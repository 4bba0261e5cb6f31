"""kill -9 in the middle of a reply: nothing the user wrote is lost, the conversation goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.conversation import Message, MessageStatus, Role
from app.paths import app_paths
from app.store.chat_store import ChatStore

# REPRISE_KILLS sets another count.
NUM_KILLS = int(os.environ.get("REPRISE_KILLS", "4"))
QUESTION = "Count from one to five hundred in words, one number per line."
START_TIMEOUT_S = 600.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="SIGKILL is a POSIX signal"),
]


def ask(model: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "app", "ask", *arguments, "--model", str(model)]


def wait_for_reply(process: subprocess.Popen[bytes], store: ChatStore, said: Path) -> None:
    """Return once the reply has begun to grow on disk."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, said.read_text(encoding="utf-8")
        if any(message.content for message in replies(store)):
            return
        time.sleep(0.1)
    raise AssertionError("no reply began")


def replies(store: ChatStore) -> list[Message]:
    conversations = store.conversations()
    messages = store.path(conversations[0].id) if conversations else []
    return [message for message in messages if message.role is Role.ASSISTANT]


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_a_kill_in_mid_reply_loses_at_most_a_second(
    smollm2_path: Path,
    reprise_home: Path,
    tmp_path: Path,
    number: int,
):
    paths = app_paths()
    command = ask(smollm2_path, QUESTION, "--temperature", "0", "--max-tokens", "400")
    store, said = ChatStore(paths.chats), tmp_path / "said.txt"
    with said.open("wb") as out:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=out)
    try:
        wait_for_reply(process, store, said)
        time.sleep(random.Random(number).uniform(0.0, 2.0))
        before_last_second = replies(store)[-1].content
        time.sleep(1.0)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    store.close()

    store = ChatStore(paths.chats)
    assert store.check() == []
    store.recover_unfinished()
    (conversation,) = store.conversations()
    question, reply = store.path(conversation.id)
    assert question.content == QUESTION
    assert reply.status in (MessageStatus.STOPPED, MessageStatus.COMPLETE, MessageStatus.LENGTH)
    assert reply.content.startswith(before_last_second)
    store.close()

    going_on = ["Go on.", "--conversation", conversation.id, "--max-tokens", "4", "--json"]
    done = subprocess.run(
        ask(smollm2_path, *going_on), capture_output=True, check=True, timeout=START_TIMEOUT_S
    )
    answer = json.loads(done.stdout)
    assert answer["conversation"] == conversation.id
    assert answer["usage"]["completion_tokens"] > 0
