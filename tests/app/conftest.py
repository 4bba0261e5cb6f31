"""An application over a temporary home and an engine without a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.events import AppEvent, ModelLoaded
from app.paths import app_paths
from app.services import Services
from tests.app.fake_engine import FakeEngine, FakeLoader
from tests.app.waiting import WAIT_S
from tests.postgres import PostgresServer, find_binaries, make_server


class App:
    """Services, the fake engine behind them, and the events so far."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.events: list[AppEvent] = []
        self._changed = threading.Condition()
        self.services = Services(app_paths(), loader=FakeLoader(engine))
        self.services.worker._idle_seconds = 0.05
        self.services.subscribe(self._note)

    def load(self) -> None:
        self.services.worker.load_model(Path("model.gguf"))
        self.wait_for(ModelLoaded)

    def wait_for(
        self, kind: type[AppEvent], fits: Callable[[AppEvent], bool] = lambda event: True
    ) -> AppEvent:
        def found() -> list[AppEvent]:
            return [event for event in self.events if isinstance(event, kind) and fits(event)]

        with self._changed:
            assert self._changed.wait_for(found, WAIT_S), self.events
            return found()[-1]

    def _note(self, event: AppEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()


@pytest.fixture
def app(reprise_home: Path) -> Iterator[App]:
    app = App(FakeEngine(Path("model.gguf")))
    yield app
    assert app.services.close(WAIT_S)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server; whoever stops or freezes it lets it run again."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed")
    server = make_server(binaries)
    yield server
    server.close()


@pytest.fixture
def shared_url(postgres: PostgresServer) -> str:
    """The address of an empty database."""
    return postgres.new_database()
