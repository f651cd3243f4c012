"""Copies of a set that a hub has: how its channel is read, and what of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from clients.python.tests.client.test_transports import forms_read_by
from clients.python.tests.mirror.test_mirror import files
from rsnotify_client.notification import TRANSPORTS
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.selection import Selection
from tests.support.amount import enough
from tests.support.running import RunningHub, rsnotify, until
from tests.support.sources import Source


@pytest.fixture
async def hub(tmp_path) -> AsyncIterator[RunningHub]:
    async with RunningHub(tmp_path / "data", drain_seconds="0") as running:
        yield running


@asynccontextmanager
async def following(hub: RunningHub, copy: Path, **options: Any) -> AsyncIterator[None]:
    """A mirror of the hub's set, while it follows the channel."""
    chosen = Options(**({"first_retry_seconds": 0.01} | options))
    async with AsyncMirror(f"{hub.url}/dataset1", copy, chosen) as mirror:
        running = asyncio.create_task(mirror.run())
        try:
            await until(lambda: forms_read_by(hub))
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


async def publish(
    hub: RunningHub, source: Source, name: str, content: bytes, **fields: str
) -> None:
    source.add(name, content)
    await hub.publish(source.loc(name), **fields)


async def has(copy: Path, **wanted: bytes) -> None:
    async def found() -> bool:
        return files(copy) == wanted

    await until(found)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_copy_is_kept_by_the_chosen_transport(hub, source, copy, transport):
    await publish(hub, source, "one", b"first")
    async with following(hub, copy, transport=transport):
        assert await forms_read_by(hub) == {transport}
        await publish(hub, source, "two", b"second")
        await has(copy, one=b"first", two=b"second")


async def test_the_command_names_the_transports_that_there_are(copy):
    ended = await rsnotify("mirror", "--transport", "mail", "http://127.0.0.1:1/", str(copy))
    assert ended.status == 2
    assert all(name in ended.err for name in TRANSPORTS)


@pytest.mark.parametrize("has_filters", [True, False])
@pytest.mark.parametrize("transport", enough(TRANSPORTS, 1))
async def test_a_copy_of_one_type_is_kept_whether_its_hub_filters_or_not(
    hub, source, copy, transport, has_filters
):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"filters": has_filters})
    await publish(hub, source, "one", b"first", type="application/pdf")
    await publish(hub, source, "page", b"first", type="text/html")
    selection = Selection(type=("application/pdf",))
    async with following(hub, copy, transport=transport, selection=selection):
        await has(copy, one=b"first")
        await publish(hub, source, "page", b"second", type="text/html")
        await publish(hub, source, "two", b"first", type="application/pdf")
        await has(copy, one=b"first", two=b"first")
        await publish(hub, source, "one", b"second", type="text/html")
        await has(copy, two=b"first")
        await publish(hub, source, "one", b"third", type="application/pdf")
        await has(copy, one=b"third", two=b"first")
    assert not [path for path, _ in source.requests if path == "/page"]
