"""Readers of a stream behind a real cache, with the configurations of docs/operations."""

import asyncio
import itertools
import json
import re
import resource
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
import pytest
from yarl import URL

from tests.fault.test_proxies import EXAMPLES, Proxied, running
from tests.fault.test_proxies import nginx as nginx_alone
from tests.support.needs import need
from tests.support.redis_server import free_port
from tests.support.running import RunningHub, until

READERS = 40
ASKED = "GET /streams/"
NUMBERS = itertools.count()
LOC = re.compile(rb"<loc>([^<]*)</loc>")

Cache = Callable[[Path, int, str], list[str]]


def nginx(folder: Path, port: int, hub: str) -> list[str]:
    """The proxy of the docs, with the cache of the docs."""
    words = nginx_alone(folder, port, [hub, hub])
    shared = (EXAMPLES / "nginx-cache.conf").read_text()
    shared = shared.replace("/var/cache/nginx/rsnotify", f"{folder}/cache")
    location = (EXAMPLES / "nginx-streams.conf").read_text()
    config = folder / "nginx.conf"
    site = config.read_text().replace("events {}", "events { worker_connections 4096; }", 1)
    site = site.replace("    location / {", f"{location}\n    location / {{", 1)
    config.write_text(site.replace("upstream rsnotify {", f"{shared}\nupstream rsnotify {{", 1))
    return words


def varnishd(folder: Path, port: int, hub: str) -> list[str]:
    vcl = (EXAMPLES / "varnish.vcl").read_text()
    host, _, hub_port = hub.partition(":")
    vcl = vcl.replace('"10.0.0.11"', f'"{host}"').replace('"8080"', f'"{hub_port}"')
    config = folder / "varnish.vcl"
    config.write_text(vcl)
    words = ["-F", "-a", f"127.0.0.1:{port}", "-f", str(config), "-n", str(folder / "varnish")]
    return [*words, "-s", "malloc,16m", "-j", "none"]


CACHES = pytest.mark.parametrize("cache", [nginx, varnishd])


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many as may be; what is started meanwhile inherits it."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


class Behind(NamedTuple):
    """A hub, and the cache before it."""

    hub: RunningHub
    cache: Proxied

    async def asked(self) -> int:
        """How many requests for streams the hub has had. A line is logged behind its answer, so one
        more request is sent straight to the hub: the lines of those before it stand above its own.
        """
        last = f"GET /marks/{next(NUMBERS)} "

        async def is_logged() -> bool:
            return last in self.hub.log.read_text()

        await self.hub.ask(*last.split())
        await until(is_logged)
        return self.hub.log.read_text().partition(last)[0].count(ASKED)


@asynccontextmanager
async def behind(cache: Cache, folder: Path, **settings: str) -> AsyncIterator[Behind]:
    program = need(cache.__name__)
    async with RunningHub(
        folder / "hub", access_log="on", drain_seconds="0", trusted_proxies="127.0.0.1", **settings
    ) as hub:
        port = free_port()
        proxied = Proxied(folder / "proxied", port)
        words = cache(folder, port, hub.url.partition("//")[2])
        with running([program, *words]):
            await until(proxied.is_up)
            yield Behind(hub, proxied)


class Reader:
    """Follows a stream by long polls, as the official clients do."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, offset: str, wanted: dict[str, str]
    ) -> None:
        self._url, self._session, self._wanted = url, session, wanted
        self._offset, self._cursor = offset, ""
        self.got: list[str] = []
        self.cursors: list[str] = []  # of answers without changes

    async def run(self) -> None:
        while True:
            asked = {"live": "long-poll", "offset": self._offset} | self._wanted
            asked |= {"cursor": self._cursor} if self._cursor else {}
            url = URL(f"{self._url}?{urlencode(sorted(asked.items()))}", encoded=True)
            async with self._session.get(url) as answer:
                assert answer.status in (200, 204), await answer.text()
                self._offset = answer.headers["Stream-Next-Offset"]
                self._cursor = answer.headers["Stream-Cursor"]
                if answer.status == 200:
                    self.got += [each["loc"] for each in json.loads(await answer.read())]
                else:
                    self.cursors.append(self._cursor)


@asynccontextmanager
async def reading(
    cache: Proxied, offset: str, filters: Sequence[dict[str, str]] = ({},)
) -> AsyncIterator[list[Reader]]:
    """Readers of each filter in turn."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"{cache.url}/streams/dataset1"
        wanted = itertools.islice(itertools.cycle(filters), READERS)
        readers = [Reader(url, session, offset, each) for each in wanted]
        tasks = [asyncio.create_task(reader.run()) for reader in readers]
        try:
            yield readers
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in ended} == {asyncio.CancelledError}, ended


@CACHES
async def test_a_change_costs_the_hub_two_requests_at_most(tmp_path, cache):
    async with behind(cache, tmp_path) as both:
        offset = (await both.hub.publish("http://example.com/first"))["until"]
        async with reading(both.cache, offset) as readers:
            names: list[str] = []
            for number in range(5):
                before = await both.asked()
                names.append(f"http://example.com/{number}")
                await both.hub.publish(names[-1])

                async def all_have_it() -> bool:
                    return all(reader.got == names for reader in readers)

                await until(all_have_it)
                if number:  # by then all wait
                    assert await both.asked() - before <= 2


@CACHES
async def test_thousands_who_wait_cost_the_hub_two_requests_at_most(tmp_path, cache, many_files):
    """nginx counts in ten bits who asks for an answer that is not there yet."""
    longest = "55"  # below the minute that the caches give the hub
    async with behind(cache, tmp_path, long_poll_seconds=longest) as both, AsyncExitStack() as ends:
        offset = (await both.hub.publish("http://example.com/first"))["until"]
        path = f"/streams/dataset1?live=long-poll&offset={quote(offset, safe='')}"
        question = f"GET {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n"

        async def ask() -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(*both.cache.url[7:].split(":"))
            ends.callback(writer.close)
            writer.write(question.encode())
            return reader

        waiting: list[asyncio.StreamReader] = []
        for _ in range(22):
            waiting += await asyncio.gather(*(ask() for _ in range(100)))
        await both.hub.publish("http://example.com/second")
        for reader in waiting:
            assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        assert await both.asked() <= 2


@CACHES
async def test_readers_of_one_filter_share_requests_and_get_nothing_of_another(tmp_path, cache):
    async with behind(cache, tmp_path) as both:
        offset = (await both.hub.publish("http://example.com/first"))["until"]
        prefixes = ["http://example.com/papers/", "http://example.com/theses/"]
        filters = [{"change": "created", "prefix": prefix} for prefix in prefixes]
        async with reading(both.cache, offset, filters) as readers:
            names: dict[int, list[str]] = {0: [], 1: []}
            for number in range(6):
                before = await both.asked()
                names[number % 2].append(f"{prefixes[number % 2]}{number}")
                await both.hub.publish(names[number % 2][-1], change="created")

                async def all_have_their_own() -> bool:
                    return all(each.got == names[at % 2] for at, each in enumerate(readers))

                await until(all_have_their_own)
                if number > 1:  # by then all wait
                    assert await both.asked() - before <= 2


@CACHES
async def test_silence_costs_the_hub_two_requests_for_each_wait(tmp_path, cache):
    """As soon as all have waited once: whoever comes has no cursor yet."""
    async with behind(cache, tmp_path, long_poll_seconds="4") as both:
        offset = (await both.hub.publish("http://example.com/first"))["until"]
        async with reading(both.cache, offset) as readers:

            async def all_have_waited() -> bool:
                return all(reader.cursors for reader in readers)

            async def all_have_waited_again() -> bool:
                return all(len(reader.cursors) >= 4 for reader in readers)

            await until(all_have_waited)
            before, seen = await both.asked(), len({c for each in readers for c in each.cursors})
            await until(all_have_waited_again)
            waits = len({cursor for reader in readers for cursor in reader.cursors}) - seen
            assert await both.asked() - before <= 2 * (waits + 1)
            name = "http://example.com/then"
            await both.hub.publish(name)

            async def all_have_it() -> bool:
                return all(reader.got == [name] for reader in readers)

            await until(all_have_it)


async def get(url: str, token: str = "") -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(URL(url, encoded=True), headers=headers) as answer,
    ):
        return answer.status, await answer.read()


@CACHES
async def test_one_question_has_one_key_however_it_is_written(tmp_path, cache):
    async with behind(cache, tmp_path) as both:
        told = await both.hub.publish("http://example.com/a")
        raw, encoded = told["from"], told["from"].replace(":", "%3A")
        url = f"{both.cache.url}/streams/dataset1"
        before, bodies = await both.asked(), set()
        for query in (
            f"live=long-poll&offset={encoded}",
            f"live=long-poll&offset={raw}",
            f"offset={raw}&live=long-poll",
            f"offset={encoded.lower().replace('t', 'T').replace('z', 'Z')}&live=long-poll",
        ):
            status, body = await get(f"{url}?{query}")
            assert status == 200
            bodies.add(body)
        assert (await both.asked() - before, len(bodies)) == (1, 1)


IN_ALL = "prefix=http%3A%2F%2Fexample.com%2F"


@CACHES
async def test_one_filter_has_one_key_and_another_has_another(tmp_path, cache):
    async with behind(cache, tmp_path) as both:
        told = await both.hub.publish("http://example.com/a", "http://example.com/b")
        offset = told["from"].replace(":", "%3A")
        url = f"{both.cache.url}/streams/dataset1?live=long-poll&offset={offset}"
        asked = [f"{url}&{IN_ALL}a&{IN_ALL}c"] * 3
        if cache is varnishd:
            raw = "prefix=http://example.com/"
            asked += [f"{url}&{IN_ALL}c&{IN_ALL}a", f"{url}&{raw}a&{raw}c"]
            asked += [f"{url.replace('?', f'?{raw}c&')}&{IN_ALL.lower()}a"]
        before = await both.asked()
        bodies = {(await get(each))[1] for each in asked}
        assert await both.asked() - before == 1
        (body,) = bodies
        assert [each["loc"] for each in json.loads(body)] == ["http://example.com/a"]
        appended = f"{both.cache.url}/streams/dataset1?{IN_ALL}a&offset={offset}&live=long-poll"
        before = await both.asked()
        assert [(await get(appended))[0] for _ in range(3)] == [200] * 3
        assert await both.asked() - before == 1
        for query, locs in ((f"{IN_ALL}b", ["b"]), (IN_ALL, ["a", "b"])):
            _, body = await get(f"{url}&{query}")
            assert [each["loc"][-1] for each in json.loads(body)] == locs
        assert (await get(f"{url}&prefix=papers"))[0] == 400


@CACHES
async def test_a_list_with_a_filter_passes_and_is_of_this_moment(tmp_path, cache):
    async with behind(cache, tmp_path) as both:
        told = await both.hub.publish("http://example.com/a", "http://example.com/b")
        url = f"{both.cache.url}/dataset1/changelist.xml?from={told['from']}"
        for name in ("a", "b", "a", "b"):
            _, body = await get(f"{url}&{IN_ALL}{name}")
            assert set(LOC.findall(body)) == {b"http://example.com/" + name.encode()}
        await both.hub.publish("http://example.com/a2")
        _, body = await get(f"{url}&{IN_ALL}a")
        assert LOC.findall(body)[-1] == b"http://example.com/a2"
        await both.hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
        assert (await get(f"{url}&{IN_ALL}a"))[0] == 404


@CACHES
@pytest.mark.parametrize(
    "query",
    ["offset=-1", "live=long-poll&offset=-1", "offset=now", f"live=long-poll&offset=-1&{IN_ALL}"],
)
async def test_nobody_without_the_right_is_answered_from_a_cache(tmp_path, cache, query):
    async with behind(cache, tmp_path) as both:
        hub, url = both.hub, f"{both.cache.url}/streams/closed?{query}"
        await hub.ask("PUT", "/api/sets/closed", json={"private": True})
        await hub.publish("http://example.com/secret", set_name="closed")
        made = [
            (await hub.ask("POST", "/api/tokens", json={"sets": [name], "rights": ["read"]}))[1]
            for name in ("closed", "dataset1")
        ]
        with_right, without = (each["token"] for each in made)
        for _ in range(3):
            if query != "offset=now":
                assert b"secret" in (await get(url, with_right))[1]
                assert b"secret" in (await get(f"{url}&access_token={with_right}"))[1]
            assert (await get(url, with_right))[0] in (200, 204)
            for token in ("", without, "rsn_" + "x" * 43):
                status, body = await get(url, token)
                assert (status in (401, 404), b"secret" in body) == (True, False)
                if token:
                    status, body = await get(f"{url}&access_token={token}")
                    assert (status in (401, 404), b"secret" in body) == (True, False)
        await hub.ask("DELETE", f"/api/tokens/{made[0]['id']}")
        assert (await get(url, with_right))[0] == 401


@CACHES
async def test_a_set_that_becomes_private_is_closed_a_second_after_its_newest_part(tmp_path, cache):
    async with behind(cache, tmp_path) as both:
        await both.hub.publish("http://example.com/a")
        url = f"{both.cache.url}/streams/dataset1?offset=-1"
        assert (await get(url))[0] == 200
        await both.hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})

        async def is_closed() -> bool:
            return (await get(url))[0] == 404

        await until(is_closed)


@CACHES
async def test_what_a_cache_does_not_share_passes_it(tmp_path, cache):
    """Event streams, writes, and questions that are none."""
    async with behind(cache, tmp_path) as both:
        url = f"{both.cache.url}/streams/dataset1"
        offset = (await both.hub.publish("http://example.com/a"))["from"]
        sse = f"{url}?live=sse&offset={offset.replace(':', '%3A')}"
        async with aiohttp.ClientSession() as session:
            streams = [await session.get(URL(sse, encoded=True)) for _ in range(2)]
            for stream in streams:
                assert (await stream.content.readline()) == b"event: data\n"
                stream.close()
            async with session.post(url, data=b"{}") as answer:
                assert answer.status == 405
        for query, status in (("offset=x", 400), ("offset=-1&offset=-1", 400), ("from=-1", 400)):
            assert (await get(f"{url}?{query}"))[0] == status, query


@CACHES
async def test_head_says_where_the_stream_ends_through_a_cache_too(tmp_path, cache):
    async with behind(cache, tmp_path) as both:
        for start in (0, 600):
            names = [f"http://example.com/{start + number}" for number in range(600)]
            told = await both.hub.publish(*names)
        url = f"{both.cache.url}/streams/dataset1"
        for _ in range(2):
            assert len(json.loads((await get(url))[1])) == 1_000
            async with aiohttp.ClientSession() as session, session.head(url) as answer:
                assert answer.headers["Stream-Next-Offset"] == told["until"]
