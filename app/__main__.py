"""Where the program is put together: the command line, and the window as its default."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main() -> None:
    """Run ``reprise`` with the process's arguments and exit."""
    from app.cli import run

    sys.exit(run(sys.argv[1:], open_window=_open_window))


def _open_window(files: Sequence[str]) -> int:
    from ui.main import main as open_window

    return int(open_window(files))


if __name__ == "__main__":
    main()
