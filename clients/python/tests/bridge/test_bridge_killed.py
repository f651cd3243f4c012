"""Bridges that are killed, and whose hubs and Source are: `make soak SOAK_ARGS=bridge`, shorter."""

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import closing, suppress
from threading import get_ident
from typing import Any

import msgspec
import pytest

from clients.python.tests.bridge.bridging import Bridging
from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify_bridge.memory import BridgeStore
from rsnotify_bridge.options import BridgeOptions
from rsnotify_bridge.service import Bridges, HubAddress
from rsnotify_bridge.sources import Piece
from rsnotify_bridge.target import HubTarget
from rsnotify_client.loading import LoadRequest
from rsnotify_client.network import Network
from tests.evidence.soak.bridge import soak
from tests.support.amount import amount, enough
from tests.support.running import TOKEN
from tests.support.sources import CAPABILITIES, Source
from tests.support.stream_server import StreamServer

EACH = amount(9, evidence=1)  # of the statements, before which a process is killed


@pytest.mark.evidence
async def test_a_bridge_that_is_killed_misses_nothing_and_publishes_nothing_twice(tmp_path):
    assert await soak(tmp_path, 8, seed=4) > 0


async def test_a_load_that_is_cut_is_closed_by_the_thread_that_read_it(tmp_path):
    """What SQLite has in one thread cannot be closed by another: Python would print that."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(64 * 1024)
        writer.transport.abort()

    async with StreamServer(cut) as server:
        address = f"http://127.0.0.1:{server.port}"
        target = HubTarget(address, TOKEN, "dataset1")
        with closing(BridgeStore(tmp_path / "bridge.db")) as store:
            state = store.bridge("http://a.example/", address, "dataset1")
            locs = [f"http://a.example/{number:04000}" for number in range(4_000)]
            state.insert(Piece([(loc, Change(loc, "created")) for loc in locs]))

            def read() -> Generator[Change, None, None]:
                with closing(state.states(lambda change: change)) as found:
                    try:
                        yield from found
                    finally:
                        ended.append(get_ident())

            ended: list[int] = []
            with pytest.raises(TryAgain):
                await target.load(read, "key", LoadRequest(max_delete=0))
            assert len(ended) == 1
            assert ended[0] != get_ident()
        target.close()


class Killed(BaseException):
    """By nobody caught."""


class DyingConnection:
    """A connection to the state file whose process is killed after so many statements."""

    def __init__(self, connection: Any, left: int) -> None:
        self._connection, self._left = connection, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, *words: Any) -> Any:
        self._count()
        return self._connection.execute(*words)

    def executemany(self, *words: Any) -> Any:
        self._count()
        return self._connection.executemany(*words)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Killed


async def look(bridging: Bridging, source: str, statements: int) -> bool:
    """One look; whether it was killed."""
    given = {"from": source, "set": bridging.set_name, "max-delete": 100}
    options = [msgspec.convert(given, BridgeOptions)]
    store = BridgeStore(bridging.state)
    store.database = DyingConnection(store.database, statements)
    bridges = None
    try:
        bridges = Bridges(options, HubAddress(bridging.hub.url, TOKEN), store, Network())
        assert await bridges.once()
    except Killed:
        return True
    finally:
        store.close()  # what was not committed is gone, as it is with a process
        if bridges is not None:
            with suppress(Killed):
                await bridges.close()
    return False


@pytest.mark.parametrize("kind", enough(["lists", "map"], 1))
async def test_killed_between_any_two_statements_it_goes_on_where_it_was(real_hub, tmp_path, kind):
    number, was_killed = 0, True
    while was_killed:
        async with Source() as source:
            for name in "abcdef":
                source.add(name, b"first")
            source.list_resources()
            real_hub.add_set(name := f"killed-{kind}-{number}")
            bridging = Bridging(real_hub, name, tmp_path / f"{number}.db")
            address = source.loc("map.xml") if kind == "map" else source.url + CAPABILITIES
            _map(source)
            was_killed = await look(bridging, address, number)
            await bridging.once(address, **{"max-delete": 100})
            assert (bridging.told(), bridging.count()) == ([], 6)
            for changed, content in (("a", b"second"), ("g", b"new"), ("b", None)):
                source.change(changed, content)
            _map(source)
            was_killed |= await look(bridging, address, number)
            facts = await bridging.once(address, **{"max-delete": 100})
            assert (facts.error, facts.held, facts.skipped) == (None, None, None)
            wanted = {("updated", "a"), ("created", "g"), ("deleted", "b")}
            found = [({"g": "created"}.get(loc, change), loc) for change, loc in bridging.told()]
            assert (sorted(found), bridging.count()) == (sorted(wanted), 6)
        number += EACH
    assert number > 20


class FullDisk(DyingConnection):
    """A connection whose disk is full at one write, and has room again at the next."""

    def execute(self, *words: Any) -> Any:
        if words[0].startswith(("COMMIT", "UPDATE bridge SET facts")):
            self._left -= 1
            if self._left == -1:
                raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(*words)

    def fill(self, left: int) -> None:
        self._left = left


async def test_a_disk_that_was_full_at_any_write_has_lost_nothing(real_hub, tmp_path):
    """The process goes on with what it has in memory."""
    number, has_failed = 0, True
    while has_failed:
        async with Source() as source:
            for name in "abc":
                source.add(name, b"first")
            source.list_resources()
            real_hub.add_set(name := f"full-{number}")
            bridging = Bridging(real_hub, name, tmp_path / f"{number}.db")
            with closing(BridgeStore(bridging.state)) as store:
                disk = FullDisk(store.database, 10**6)
                store.database = disk
                address = source.url + CAPABILITIES
                async with bridging.running(address, store=store) as bridges:
                    assert await bridges.once()
                    source.change("a", b"second")
                    source.change("d", b"new")
                    disk.fill(number)
                    has_failed = not await bridges.once()
                    disk.fill(10**6)
                    assert await bridges.once()
            assert bridging.told() == [("updated", "a"), ("created", "d")]
        number += 1
    assert number > 3


def _map(source: Source) -> None:
    """A sitemap that says of each what it has."""
    entries = "".join(
        f"<url><loc>{source.url}{path}</loc><lastmod>2026-11-{10 + len(body)}</lastmod></url>"
        for path, body in source.resources.items()
    )
    namespace = "http://www.sitemaps.org/schemas/sitemap/0.9"
    source.documents["/map.xml"] = f'<urlset xmlns="{namespace}">{entries}</urlset>'.encode()
