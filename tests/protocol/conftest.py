"""One hub for all black-box tests of WebSub: each takes a set and a receiver of its own."""

import itertools
from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.running import RunningHub

_numbers = itertools.count(1)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def websub_hub(tmp_path_factory) -> AsyncIterator[RunningHub]:
    data = tmp_path_factory.mktemp("websub") / "data"
    async with RunningHub(data, callback_private="allow") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def strict_hub(tmp_path_factory) -> AsyncIterator[RunningHub]:
    """A hub as it is when nobody has allowed private callbacks."""
    async with RunningHub(tmp_path_factory.mktemp("strict") / "data") as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def new_set(websub_hub: RunningHub) -> str:
    """A set that nobody else publishes to."""
    name = f"set{next(_numbers)}"
    status, _ = await websub_hub.ask("PUT", f"/api/sets/{name}")
    assert status == 201
    return name
