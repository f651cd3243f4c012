"""Fixtures: a hub of its own for a test, and a real Redis shared by the tests that need one."""

import asyncio
import fcntl
import gc
import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from rsnotify.process.embedded_redis import EmbeddedRedis
from rsnotify.redis_client import Client, connect
from tests.support.amount import as_evidence
from tests.support.clock import Clock
from tests.support.faults import OwnRedis, SlowWay
from tests.support.reference import installed
from tests.support.running import RunningHub
from tests.support.shell import come_back, leave

settings.register_profile(  # the machine may be busy
    "no clock", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no clock")


def pytest_configure(config: pytest.Config) -> None:
    """Whoever runs tests leaves the shell; who hands them to workers only waits."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        folder = leave()
        config.add_cleanup(lambda: come_back(folder))
        gc.disable()  # until all is collected: what is made meanwhile stays


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Of many workers the first compiles what all import; in a fresh clone each would."""
    if getattr(session.config, "workerinput", {}).get("workercount", 0) <= 2:
        return (yield)
    shared = Path(session.config.getoption("basetemp")).parent
    with (shared / "compiled").open("a") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        if is_compiled := os.fstat(mark.fileno()).st_size > 0:
            fcntl.flock(mark, fcntl.LOCK_UN)
        collected = yield
        if not is_compiled:
            mark.write("by the first")
    return collected


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is evidence rather than a test of each change is left out, unless it is asked for."""
    if not as_evidence() and "evidence" not in config.option.markexpr:
        left = [item for item in items if item.get_closest_marker("evidence")]
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish() -> None:
    """Nobody looks for garbage among thousands of tests, whose number would make each look long."""
    gc.freeze()
    gc.enable()


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    """A running hub with one empty set, dataset1."""
    async with RunningHub(tmp_path / "data") as running:
        yield running


@pytest.fixture
async def own_hub(tmp_path: Path) -> AsyncIterator[RunningHub]:
    """The same, in a file whose other tests share one."""
    async with RunningHub(tmp_path / "data") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def hub_of_worker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    async with RunningHub(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running


@pytest.fixture
async def shared_hub(hub_of_worker: RunningHub) -> RunningHub:
    """A hub that others have used, with an empty set, dataset1, and no token; nobody may end it."""
    for each in (await hub_of_worker.ask("GET", "/api/sets"))[1]:
        await hub_of_worker.ask("DELETE", f"/api/sets/{each['name']}")
    for each in (await hub_of_worker.ask("GET", "/api/tokens"))[1]:
        await hub_of_worker.ask("DELETE", f"/api/tokens/{each['id']}")
    await hub_of_worker.ask("PUT", "/api/sets/dataset1")
    return hub_of_worker


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One redis-server for all tests that speak to Redis directly."""
    server = EmbeddedRedis(tmp_path_factory.mktemp("redis"))
    with asyncio.Runner() as runner:
        runner.run(server.start())
        yield server.url
        runner.run(server.stop())


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Client]:
    """A connection to an empty Redis."""
    connected = connect(redis_url)
    await connected.flushall()
    yield connected
    await connected.aclose()


@pytest.fixture
async def own_redis(tmp_path: Path) -> AsyncIterator[OwnRedis]:
    """A redis-server for this test alone, to be maltreated."""
    async with OwnRedis(tmp_path) as server:
        yield server


@pytest.fixture
async def way(own_redis: OwnRedis) -> AsyncIterator[SlowWay]:
    """A way to `own_redis` on which answers can be delayed, held back or lost."""
    async with SlowWay(own_redis.url) as found:
        yield found


@pytest.fixture(scope="session")
def resync() -> Path:
    """The command of the reference client."""
    return installed()


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    """A wall clock to move; `moved_redis` takes its time from it."""
    return Clock(tmp_path)


@pytest.fixture
async def moved_redis(tmp_path: Path, clock: Clock) -> AsyncIterator[OwnRedis]:
    """A redis-server for this test alone, whose clock is `clock`."""
    async with OwnRedis(tmp_path, clock=clock) as server:
        yield server
