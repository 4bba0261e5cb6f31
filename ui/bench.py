"""Measures what the window itself costs: opening a long chat, and every token that arrives.

Run by ``reprise bench interface``. Needs no model and no torch; draws off screen when there is no
display.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from PySide6.QtCore import QEvent, qVersion
from PySide6.QtWidgets import QApplication

from app.bench.report import Report, Row, cpu_name
from app.conversation import Conversation, Message, MessageStatus, Role
from app.events import ReplyDelta
from engine.events import Channel
from ui.chat.chat_pane import ChatPane
from ui.chat.highlight import preload
from ui.chat.look import Look
from ui.theme import body_font, load_theme, palette, stylesheet

NUM_MESSAGES = 1000
NUM_TOKENS = 600
NUM_STARTS = 3
_SIZE = (960, 900)
_START_TIMEOUT_S = 60

_REPLY = """The answer has **two parts**, and `both` matter.

1. The first is a [link](https://example.org) in a list.
2. The second is a little longer, so that it wraps onto another line in a column of ordinary width.

```python
def answer(question: str) -> int:
    return 42  # always
```

| Name | Value |
|------|------:|
| one  |     1 |
| two  |     2 |

> A closing remark, as a quotation.
"""


def measure_interface() -> dict[str, float]:
    """Return milliseconds of the GUI thread, painting included.

    append_*: one token at the end of 1,000 messages. open: showing such a conversation.
    window_visible, window_ready: from the start of a process to the first paint of its window, and
    to the one that can be written in, by the clock; medians of three starts.
    """
    application()
    # As the window does once it is on screen.
    preload()
    opens = [_open_ms() for _ in range(5)]
    appends = sorted(_append_ms())
    starts = _start_ms()
    return {
        "append_p50_ms": statistics.median(appends),
        "append_p95_ms": appends[int(len(appends) * 0.95)],
        "append_mean_ms": statistics.fmean(appends),
        "open_ms": statistics.median(opens),
        "window_visible_ms": statistics.median(visible for visible, _ in starts),
        "window_ready_ms": statistics.median(ready for _, ready in starts),
    }


def application() -> QApplication:
    """Return the running application, or one that draws off screen if there is no display."""
    running = QApplication.instance()
    if isinstance(running, QApplication):
        return running
    has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if sys.platform.startswith("linux") and not has_display:
        os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    created = QApplication([])
    theme = load_theme("light")
    created.setStyleSheet(stylesheet(theme))
    created.setPalette(palette(theme))
    created.setFont(body_font())
    return created


def long_conversation(num_messages: int = NUM_MESSAGES) -> list[Message]:
    """Return questions and replies in turn, the last one a reply that has just begun."""
    messages = [
        _message(index, _REPLY if index % 2 else "And then?") for index in range(num_messages)
    ]
    live = _message(num_messages - 1 | 1, "")
    messages[-1] = Message(
        live.id, "bench", None, Role.ASSISTANT, "", live.created_at, MessageStatus.STREAMING
    )
    return messages


def _message(index: int, content: str) -> Message:
    role = Role.ASSISTANT if index % 2 else Role.USER
    return Message(f"m{index}", "bench", None, role, content, datetime.now(UTC))


def _open_ms() -> float:
    pane, messages = _pane(), long_conversation()
    now = datetime.now(UTC)
    start = time.thread_time()
    pane.set_conversation(Conversation("bench", "Bench", now, now), messages, "")
    _paint(pane)
    spent = (time.thread_time() - start) * 1000
    _close(pane)
    return spent


def _append_ms() -> list[float]:
    pane, messages = _pane(), long_conversation()
    now = datetime.now(UTC)
    pane.set_conversation(Conversation("bench", "Bench", now, now), messages, "")
    _settle()
    reply = messages[-1].id
    spent = []
    for token in _tokens(NUM_TOKENS):
        delta = ReplyDelta("bench", reply, token, Channel.CONTENT, 25.0)
        start = time.thread_time()
        pane.apply_delta(delta)
        _paint(pane)
        spent.append((time.thread_time() - start) * 1000)
    _close(pane)
    return spent


def _tokens(number: int) -> list[str]:
    text = "\n\n".join([_REPLY] * (number // 60 + 1))
    return [text[start : start + 4] for start in range(0, 4 * number, 4)]


def _pane() -> ChatPane:
    pane = ChatPane(look=Look(load_theme("light")))
    pane.resize(*_SIZE)
    pane.show()
    _settle()
    return pane


def _paint(pane: ChatPane) -> None:
    """Paint what changed, as the next frame of the screen would."""
    QApplication.sendEvent(pane.window(), QEvent(QEvent.Type.UpdateRequest))
    QApplication.processEvents()


def _settle() -> None:
    for _ in range(50):
        QApplication.processEvents()


def _close(pane: ChatPane) -> None:
    pane.close()
    pane.deleteLater()
    _settle()


def _start_ms() -> list[tuple[float, float]]:
    """Start processes of their own, as a person would, over one home folder."""
    root = Path(__file__).resolve().parent.parent
    starts = []
    with TemporaryDirectory() as home:
        for _ in range(NUM_STARTS):
            done = subprocess.run(
                [sys.executable, "-m", "ui.bench_start", repr(time.time())],
                cwd=root,
                env=os.environ | {"REPRISE_HOME": home},
                capture_output=True,
                text=True,
                timeout=_START_TIMEOUT_S,
                check=True,
            )
            visible, ready = map(float, done.stdout.split()[-2:])
            starts.append((visible, ready))
    return starts


def main(argv: Sequence[str]) -> int:
    """Measure, print the table, and write it where --json says."""
    parser = ArgumentParser(prog="reprise bench interface")
    parser.add_argument("--json", type=Path)
    out = parser.parse_args(argv).json
    rows = [Row(name.removesuffix("_ms"), "ms", ms) for name, ms in measure_interface().items()]
    machine = {"cpu": cpu_name(), "threads": 1, "qt": qVersion()}
    report = Report("interface", f"{NUM_MESSAGES} messages", machine, tuple(rows))
    print(report.to_text())
    if out:
        report.save(out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
