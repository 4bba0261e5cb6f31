from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

from app.store.chat_store import ChatStore
from app.store.kv_store import KVStore
from tests.app.store.kv_samples import FINGERPRINT
from tests.app.waiting import WAIT_S

WRITER = """
import sys
from pathlib import Path
from app.conversation import MessageStatus, Role
from app.store.chat_store import ChatStore
from app.store.kv_store import KVStore
from tests.app.store.kv_samples import chain, job

home = Path(sys.argv[1])
chats = ChatStore(home / "chats.db")
chats.recover_unfinished()
kv = KVStore(home / "kv.db", 1 << 26)
key = chats.create_conversation(title="Loop").id
parent = None
for number in range(100_000):
    sent = chats.add_message(key, parent_id=parent, role=Role.USER, content=f"question {number}")
    print(key, number, flush=True)
    reply = chats.add_message(key, parent_id=sent.id, role=Role.ASSISTANT, content="",
                              status=MessageStatus.STREAMING)
    for step in range(5):
        chats.update_message(reply.id, content="word " * step)
    chats.update_message(reply.id, status=MessageStatus.COMPLETE)
    kv.submit(job(f"{key}{number % 7}", chain(f"{key}{number}", 20, size=50_000)))
    parent = reply.id
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
def test_killed_while_writing_both_databases_open_and_keep_every_sent_message(tmp_path):
    dice = random.Random(7)
    for _ in range(5):
        key, number = run_and_kill(tmp_path, dice.uniform(0.2, 1.5))
        chats = ChatStore(tmp_path / "chats.db")
        assert chats.check() == []
        sent = [item.content for item in chats.messages(key) if item.content.startswith("q")]
        assert sent[: number + 1] == [f"question {at}" for at in range(number + 1)]
        chats.close()
        kv = KVStore(tmp_path / "kv.db", 1 << 26)
        assert kv.flush(WAIT_S)
        assert kv.verify().num_damaged == 0
        for use in kv.usage():
            for manifest in kv.read_manifests(FINGERPRINT, use.conversation_id):
                found = kv.existing(FINGERPRINT, manifest.block_hashes)
                assert found == set(manifest.block_hashes)
        assert kv.problem == ""
        kv.close()


def run_and_kill(home, seconds: float) -> tuple[str, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(home)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    # On a busy machine there may be no other line.
    lines = [first, *process.stdout.read().splitlines()]
    process.stdout.close()
    process.wait()
    key, number = lines[-1].split() if lines and len(lines[-1].split()) == 2 else lines[-2].split()
    return key, int(number)
