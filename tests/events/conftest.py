"""Logs to test: each kind once, closed behind the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rewake.events.memory import MemoryLog
from rewake.events.sqlite import SqliteLog

AnyLog = MemoryLog | SqliteLog


class Place:
    """Where a log is kept: in a file, or in the object itself. `opened` opens it as the next process would."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._memory = MemoryLog()
        self._opened: list[SqliteLog] = []

    def opened(self) -> AnyLog:
        if self.path is None:
            self._memory.close()
            return self._memory
        self.close()
        self._opened.append(SqliteLog(self.path))
        return self._opened[-1]

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "log.db" if request.param == "sqlite" else None)
    yield place
    place.close()


@pytest.fixture
def log(place: Place) -> AnyLog:
    return place.opened()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def sqlite(path: Path) -> Iterator[SqliteLog]:
    log = SqliteLog(path)
    yield log
    log.close()
