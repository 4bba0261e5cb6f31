"""One start of the window, timed from inside: ``python -m ui.bench_start SECONDS_SINCE_1970``.

Imports no more than the program itself does, or the figure would be another one.
"""

from __future__ import annotations

import sys
import time

from PySide6.QtCore import QEventLoop

from app.paths import app_paths
from ui.main import Session, build_application, open_services


def time_to_window(started_at: float) -> tuple[float, float]:
    """Open the real window; return milliseconds until it is painted, and until it is filled.

    started_at: time.time() when the process was started.
    """
    from app.log import RunLog

    paths = app_paths()
    paths.create()
    running = build_application()
    run_log = RunLog(paths.logs)
    session = Session(lambda: open_services(paths), running, paths, run_log)
    moments: list[float] = []
    for moment in (session.frame.painted, session.filled):
        moment.connect(lambda: moments.append((time.time() - started_at) * 1000))
    session.frame.show()
    while len(moments) < 2:
        running.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
    session.frame.close()
    session.close()
    run_log.close()
    return moments[0], moments[1]


if __name__ == "__main__":
    times = time_to_window(float(sys.argv[1]))
    assert "torch" not in sys.modules, "the window must be on screen before torch is imported"
    print(*times, flush=True)
