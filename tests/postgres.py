"""A PostgreSQL server of the tests' own: made with initdb, thrown away afterwards."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

PASSWORD = "open sesame"
_USER = "reprise"
_BINARIES = "/usr/lib/postgresql/*/bin"
# Seconds that a machine may need which has much else to do.
_PATIENTLY = ("-w", "-t", "600")
# Below those that the system gives to outgoing connections: it stays free while the server is off.
_PORTS = range(20_000, 30_000)
_SETTINGS = {
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": "40",
    "unix_socket_directories": "''",
    "listen_addresses": "127.0.0.1",
}


class PostgresServer:
    """One cluster on a free port of this machine; it can be stopped, frozen and killed."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self._folder = folder
        self._binaries = binaries
        self._data = folder / "data"
        self._owner = _owner()
        self._num_databases = 0
        self.port = _free_port()
        self._initialise()
        self.start()

    def url(self, database: str, *, password: str = PASSWORD, port: int | None = None) -> str:
        """Return the address of a database; an answer is not waited for longer than needed."""
        password = password.replace(" ", "%20")
        place = f"127.0.0.1:{port or self.port}/{database}"
        return f"postgresql://{_USER}:{password}@{place}?connect_timeout=60&sslmode=disable"

    def new_database(self) -> str:
        """Create an empty database and return its address."""
        import psycopg

        self._num_databases += 1
        name = f"shared{self._num_databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def start(self) -> None:
        """Start the server and wait for it."""
        log = self._folder / "log"
        options = ("-l", log, "-o", self._options())
        self._run("pg_ctl", "-D", self._data, *_PATIENTLY, *options, "start")

    def stop(self) -> None:
        """Break every connection and end the server."""
        self._run("pg_ctl", "-D", self._data, *_PATIENTLY, "-m", "fast", "stop")

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def freeze(self) -> None:
        """Let every process of the server stand still: it takes connections, but never answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its files."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _initialise(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if self._owner is not None:
            shutil.chown(self._folder, self._owner)
            shutil.chown(secret, self._owner)
        options = ("-U", _USER, "--auth=scram-sha-256", f"--pwfile={secret}")
        self._run("initdb", "-D", self._data, *options, "-E", "UTF8", "--no-locale", "-N")

    def _options(self) -> str:
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        return f"-p {self.port} {settings}"

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [str(self._binaries / program), *map(str, arguments)]
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            user=self._owner,
            group=None if self._owner is None else "nogroup",
            extra_groups=None if self._owner is None else [],
        )

    def _signal(self, number: signal.Signals) -> None:
        postmaster = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        _send(postmaster, number)
        # Asked for only now: one that stands still makes no more of them.
        for process in postmaster.children():
            # A process of a connection that ended meanwhile is gone.
            with suppress(psutil.NoSuchProcess):
                _send(process, number)


def _send(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal; return once a process that is to stand still does."""
    process.send_signal(number)
    while number is signal.SIGSTOP and process.status() not in ("stopped", "zombie"):
        time.sleep(0.01)


def find_binaries() -> Path | None:
    """Return the folder with initdb and pg_ctl; None where PostgreSQL is not installed."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/").glob(_BINARIES.lstrip("/")))
    return next((f for f in reversed(folders) if (f / "initdb").exists()), None)


def make_server(binaries: Path) -> PostgresServer:
    """Return a running server in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="reprise-postgres-"))
    return PostgresServer(folder, binaries)


def _owner() -> str | None:
    """Return the user to run as: PostgreSQL refuses to be run by root."""
    return "nobody" if os.name == "posix" and os.geteuid() == 0 else None


def _free_port() -> int:
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")
