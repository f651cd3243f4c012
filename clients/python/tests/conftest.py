"""What the tests of client, mirror and bridge share: a hub, a Source, an outbox table.

What a failed test has left running is ended here.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rsnotify.resourcesync.retry import Backoff
from rsnotify_client import follower, hub, sender
from rsnotify_client.answer import HUB_BACKOFF
from rsnotify_client.outbox import Outbox
from tests.support.hub_processes import HubProcess, end_processes
from tests.support.sources import Source


@pytest.fixture(autouse=True)
def _no_processes_left() -> Iterator[None]:
    yield
    end_processes()


@pytest.fixture(scope="module")
def real_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with HubProcess(tmp_path_factory.mktemp("hub") / "data", "dataset1") as hub:
        yield hub


@pytest.fixture
def set_name(real_hub: HubProcess, request: pytest.FixtureRequest) -> str:
    """A set of the test's own."""
    name = request.node.originalname.replace("_", "-")[:60].rstrip("-")
    real_hub.add_set(name)
    return str(name)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that could not answer is asked again soon."""
    for module in (follower, hub, sender):
        monkeypatch.setattr(module, "HUB_BACKOFF", Backoff(0.01, 0.5))


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A follower's pauses, by the number that makes them longer; none takes time."""
    found: list[int] = []

    class Noted(Backoff):
        def seconds(self, failures: int, chance: float, asked: float = 0.0) -> float:
            found.append(failures)
            return 0.0 * super().seconds(failures, chance, asked)

    monkeypatch.setattr(follower, "HUB_BACKOFF", Noted(*HUB_BACKOFF))
    return found


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    """A Source of three resources, in a Resource List."""
    async with Source() as running:
        for name in "abc":
            running.add(f"{name}.txt", f"first {name}".encode())
        running.list_resources()
        yield running


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """An application's, in SQLite, with an outbox table."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        Outbox.create(connection)
    return path
