from __future__ import annotations

import errno
import logging
import subprocess
import sys
import threading
from logging.handlers import RotatingFileHandler

from app.log import RunLog, command_log


def test_messages_reach_the_file(tmp_path):
    log = RunLog(tmp_path)
    logging.getLogger("anywhere").info("hello")
    log.close()
    assert "anywhere: hello" in log.path.read_text(encoding="utf-8")


def test_a_run_that_did_not_close_is_known_to_the_next(tmp_path):
    code = (
        f"import os, pathlib; from app.log import RunLog; RunLog(pathlib.Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", code + "; os._exit(1)"], check=False)
    log = RunLog(tmp_path)
    assert log.previous_crashed
    log.close()
    log = RunLog(tmp_path)
    assert not log.previous_crashed
    log.close()


def test_a_run_beside_this_one_is_no_crash(tmp_path):
    code = (
        f"import pathlib; from app.log import RunLog; folder = pathlib.Path({str(tmp_path)!r});"
        "log = RunLog(folder); print(log.previous_crashed); log.close()"
    )
    log = RunLog(tmp_path)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    log.close()
    assert result.stdout.strip() == "False"


def test_an_error_no_one_caught_in_a_thread_is_logged_and_told(tmp_path):
    log, crashes = RunLog(tmp_path), []
    log.install_hooks(crashes.append)
    error = ValueError("lost")

    def fail() -> None:
        raise error

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    sys.excepthook(ValueError, error, None)
    log.close()
    assert crashes == [error, error]
    text = log.path.read_text(encoding="utf-8")
    assert "uncaught in worker" in text
    assert "ValueError: lost" in text


def test_a_log_that_cannot_grow_prints_no_traceback(tmp_path, monkeypatch, capsys):
    def refuse(handler: RotatingFileHandler, record: logging.LogRecord) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RotatingFileHandler, "shouldRollover", refuse)
    with command_log(tmp_path):
        logging.getLogger("app").warning("something")
    assert capsys.readouterr().err == ""
