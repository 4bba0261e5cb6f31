"""One window per home folder: a second start hands its files over and leaves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal, Slot
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from app.errors import HomeUnusableError

WAIT_MS = 1000


class SingleInstance(QObject):
    """Holds the lock of a home folder while it lives."""

    summoned = Signal(list)

    def __init__(self, home: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        home.mkdir(parents=True, exist_ok=True)
        self._name = "reprise-" + hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]
        self._lock = QLockFile(str(home / "reprise.lock"))
        self._lock.setStaleLockTime(0)
        self._server: QLocalServer | None = None

    def acquire(self) -> bool:
        """Become the one window; False when there is one already.

        Raises: HomeUnusableError where nothing can be written.
        """
        if not self._lock.tryLock(0):
            if self._lock.error() is not QLockFile.LockError.LockFailedError:
                raise HomeUnusableError(
                    "Nothing can be written where Reprise keeps its data.",
                    detail=self._lock.fileName(),
                )
            return False
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._receive)
        self._server.listen(self._name)
        return True

    def summon(self, files: list[str]) -> bool:
        """Raise the window that is there already and pass files on; False when it is deaf."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(WAIT_MS):
            return False
        socket.write(json.dumps(files).encode() + b"\n")
        is_sent = socket.waitForBytesWritten(WAIT_MS)
        socket.disconnectFromServer()
        return is_sent

    def release(self) -> None:
        """Let another window take over."""
        if self._server is not None:
            self._server.close()
        self._lock.unlock()

    @Slot()
    def _receive(self) -> None:
        assert self._server is not None
        socket = self._server.nextPendingConnection()
        socket.readyRead.connect(self._read)
        socket.disconnected.connect(socket.deleteLater)
        if socket.canReadLine():
            self._take(socket)

    @Slot()
    def _read(self) -> None:
        socket = self.sender()
        if isinstance(socket, QLocalSocket) and socket.canReadLine():
            self._take(socket)

    def _take(self, socket: QLocalSocket) -> None:
        try:
            files = json.loads(bytes(socket.readLine().data()))
        except ValueError:
            return
        if isinstance(files, list):
            self.summoned.emit([name for name in files if isinstance(name, str)])
