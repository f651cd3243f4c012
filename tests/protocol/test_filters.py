"""Who wants a part of a set gets each change of it once and in order, on every way out."""

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any
from urllib.parse import urlencode
from zlib import crc32

import aiohttp
import pytest
import pytest_asyncio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rsnotify.live.filter_counts import FILTERS, FILTERS_OF_ONE
from rsnotify_client.discovery import discover
from rsnotify_client.web import Web
from rsnotify_mirror.commands.validate import judged
from tests.protocol.test_channels import close_of
from tests.support.amount import enough
from tests.support.filter_takers import takers
from tests.support.running import PATIENT_SECONDS, RunningHub, until

PAPERS, THESES = "http://example.com/papers/", "http://example.com/theses/"
CHANNEL = "/channels/{}/change_notification_channel"
ENTRY = re.compile(r"<loc>([^<]*)</loc>.*?change=\"(\w+)\"")
INTERVAL = re.compile(r' from="([^"]+)" until="([^"]+)"')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningHub]:
    folder = tmp_path_factory.mktemp("filters") / "data"
    async with RunningHub(folder, sets=()) as running:
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")

_numbers = iter(range(1_000_000))


async def new_set(hub: RunningHub, **options: Any) -> str:
    name = f"set{next(_numbers)}"
    status, _ = await hub.ask("PUT", f"/api/sets/{name}", json=options)
    assert status == 201
    return name


async def publish(hub: RunningHub, name: str, *changes: dict[str, Any]) -> str:
    """The position that is reached."""
    status, told = await hub.ask("POST", f"/api/sets/{name}/changes", json=[*changes])
    assert status == 201, told
    return str(told["until"])


def updated(loc: str, **fields: Any) -> dict[str, Any]:
    return {"loc": loc, "change": "updated"} | fields


# --- every way out -------------------------------------------------------------------------------

Told = tuple[list[tuple[str, str]], str, str | None]
"""What one notification or answer has: its changes, where it ends, and where it says it begins."""

Way = Callable[[RunningHub, str, str, str], AsyncGenerator[Told, None]]


def of_xml(text: str) -> Told:
    from_, until = INTERVAL.findall(text)[0]
    return [(loc.replace("&amp;", "&"), kind) for loc, kind in ENTRY.findall(text)], until, from_


def of_json(text: str) -> Told:
    found = json.loads(text)
    return (
        [(each["loc"], each["change"]) for each in found["changes"]],
        found["until"],
        found["from"],
    )


async def by_websocket(
    hub: RunningHub, name: str, query: str, since: str, form: str = "xml"
) -> AsyncGenerator[Told, None]:
    address = f"ws://127.0.0.1:{hub.port}{CHANNEL.format(name)}?from={since}&format={form}&{query}"
    async with connect(address) as socket:
        async for message in socket:
            yield of_json(message) if form == "json" else of_xml(message)


async def by_websocket_in_json(
    hub: RunningHub, name: str, query: str, since: str
) -> AsyncGenerator[Told, None]:
    async with aclosing(by_websocket(hub, name, query, since, "json")) as found:
        async for each in found:
            yield each


async def by_several(
    hub: RunningHub, name: str, query: str, since: str
) -> AsyncGenerator[Told, None]:
    path = "/channels/change_notification_channel"
    address = f"ws://127.0.0.1:{hub.port}{path}?set={name}@{since}&{query}"
    async with connect(address) as socket:
        async for message in socket:
            yield of_xml(message)


async def events(
    hub: RunningHub, address: str
) -> AsyncGenerator[tuple[dict[str, str], list[str]], None]:
    headers = {"Accept": "text/event-stream"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(hub.url + address, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()
        fields: dict[str, str] = {}
        data: list[str] = []
        async for raw in answer.content:
            line = raw.decode().rstrip("\n")
            if line:
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "data":
                    data.append(value)
                fields[field] = value
            else:
                yield fields, data
                fields, data = {}, []


async def by_event_stream(
    hub: RunningHub, name: str, query: str, since: str
) -> AsyncGenerator[Told, None]:
    address = f"{CHANNEL.format(name)}?from={since}&{query}"
    async with aclosing(events(hub, address)) as found:
        async for fields, data in found:
            if data:
                told = of_xml("\n".join(data))
                assert fields["id"] == told[1]
                yield told


async def by_stream_events(
    hub: RunningHub, name: str, query: str, since: str
) -> AsyncGenerator[Told, None]:
    address = f"/streams/{name}?live=sse&offset={since}&{query}"
    changes: list[tuple[str, str]] = []
    async with aclosing(events(hub, address)) as found:
        async for fields, data in found:
            if fields.get("event") == "data":
                changes = [(e["loc"], e["change"]) for e in json.loads("\n".join(data))]
            elif fields.get("event") == "control":
                yield changes, json.loads("".join(data))["streamNextOffset"], None
                changes = []


async def by_stream(
    hub: RunningHub, name: str, query: str, since: str, live: str = ""
) -> AsyncGenerator[Told, None]:
    offset = since
    async with aiohttp.ClientSession() as session:
        while True:
            address = f"{hub.url}/streams/{name}?{live}offset={offset}&{query}"
            async with session.get(address) as answer:
                assert answer.status in (200, 204), await answer.text()
                offset = answer.headers["Stream-Next-Offset"]
                body = await answer.read()
            yield [(e["loc"], e["change"]) for e in json.loads(body or b"[]")], offset, None
            await asyncio.sleep(0.01)


async def by_long_poll(
    hub: RunningHub, name: str, query: str, since: str
) -> AsyncGenerator[Told, None]:
    async with aclosing(by_stream(hub, name, query, since, "live=long-poll&")) as found:
        async for each in found:
            yield each


async def by_list(hub: RunningHub, name: str, query: str, since: str) -> AsyncGenerator[Told, None]:
    cursor = since
    while True:
        _, text = await hub.ask("GET", f"/{name}/changelist.xml?from={cursor}&{query}")
        told = of_xml(text.decode())
        cursor = told[1]
        yield told
        await asyncio.sleep(0.01)


async def by_json_pages(
    hub: RunningHub, name: str, query: str, since: str
) -> AsyncGenerator[Told, None]:
    cursor = since
    while True:
        address = f"/{name}/changelist.xml?from={cursor}&limit=100&format=json&{query}"
        _, found = await hub.ask("GET", address)
        told = of_json(json.dumps(found))
        cursor = told[1]
        yield told
        await asyncio.sleep(0.01)


WAYS: dict[str, Way] = {
    "WebSocket": by_websocket,
    "WebSocket in JSON": by_websocket_in_json,
    "WebSocket of several sets": by_several,
    "event stream": by_event_stream,
    "Durable Stream": by_stream,
    "long-poll": by_long_poll,
    "stream events": by_stream_events,
    "Change List": by_list,
    "pages in JSON": by_json_pages,
}


async def heard(
    way: Way, hub: RunningHub, name: str, query: str, since: str, end: str
) -> list[Any]:
    """All changes up to a position, once each interval has been seen to join the one before."""
    found: list[Any] = []
    cursor = since
    async with asyncio.timeout(PATIENT_SECONDS), aclosing(way(hub, name, query, since)) as told:
        async for changes, until, from_ in told:
            assert from_ in (None, cursor), "a gap or a repetition"
            assert until >= cursor
            cursor = until
            found += changes
            if cursor >= end:
                return found
    raise AssertionError("it has ended")


def history(seed: int, number: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    kinds = ("created", "updated", "updated", "deleted")
    places = (PAPERS, THESES, "http://example.com/a?x=1&y=")
    return [
        {"loc": f"{chance.choice(places)}{chance.randrange(9)}", "change": chance.choice(kinds)}
        for _ in range(number)
    ]


FILTERS_TRIED: dict[str, Callable[[dict[str, Any]], bool]] = {
    f"prefix={PAPERS}": lambda each: each["loc"].startswith(PAPERS),
    urlencode({"prefix": "http://example.com/a?x=1&y"}): lambda each: "&" in each["loc"],
    f"change=created&prefix={PAPERS}&prefix={THESES}": lambda each: (
        each["change"] != "updated" and "&" not in each["loc"]
    ),
    "prefix=http://example.org/": lambda _: False,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", enough([*FILTERS_TRIED], 2))
async def test_live_and_later_each_change_of_the_part_comes_once_and_in_order(hub, way, query):
    name = await new_set(hub)
    since = await publish(hub, name, updated("http://example.com/first"))
    changes = history(crc32(query.encode()), 60)
    last = updated(f"{PAPERS}last")  # read by all, so that each has something to end with
    wanted = [(e["loc"], e["change"]) for e in changes if FILTERS_TRIED[query](e)]
    both = f"{query}&prefix={last['loc']}" if "prefix" in query else query
    if "change=" in query:
        last["change"] = "created"
    ends = asyncio.get_running_loop().create_future()

    async def live() -> list[Any]:
        found: list[Any] = []
        async with aclosing(WAYS[way](hub, name, both, since)) as told:
            cursor = since
            async for part, until, from_ in told:
                assert from_ in (None, cursor), "a gap or a repetition"
                cursor = until
                found += part
                if (last["loc"], last["change"]) in part:
                    ends.set_result(until)
                    return found
        raise AssertionError("it has ended")

    async with asyncio.timeout(PATIENT_SECONDS), asyncio.TaskGroup() as group:
        reading = group.create_task(live())
        while changes:
            taken, changes = changes[:7], changes[7:]
            await publish(hub, name, *taken)
        end = await publish(hub, name, last)
    assert reading.result() == [*wanted, (last["loc"], last["change"])]
    assert await ends == end
    later = await heard(WAYS[way], hub, name, both, since, end)
    assert later == reading.result()


# --- what may not be hidden ----------------------------------------------------------------------

PDF, HTML = "application/pdf", "text/html"
ONE, TWO = "http://example.com/one", "http://example.com/two"

Described = tuple[str | None, tuple[str, ...]]
TYPED: dict[str, Callable[[Described], bool]] = {
    f"type={PDF}": lambda each: each[0] == PDF,
    f"type={PDF}&type=image/*&collection={ONE}": lambda each: (
        each[0] in (PDF, "image/png") and ONE in each[1]
    ),
}


def typed_history(seed: int, number: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []
    for _ in range(number):
        collections = chance.choice(((), (ONE,), (TWO, ONE)))
        media_type = chance.choice((PDF, HTML, "image/png", None))
        kind = chance.choice(("created", "updated", "updated", "deleted"))
        described = {"type": media_type} if media_type and kind != "deleted" else {}
        links = [{"rel": "collection", "href": each} for each in collections]
        more = {"links": links} if links and kind != "deleted" else {}
        loc = f"{PAPERS}{chance.randrange(4)}"
        found.append({"loc": loc, "change": kind} | described | more)
    return found


def wanted_of(changes: list[dict[str, Any]], fits: Callable[[Described], bool]) -> list[Any]:
    """What fits, or did before this change, or may have."""
    known: dict[str, Described] = {}
    found: list[Any] = []
    for each in changes:
        links = tuple(link["href"] for link in each.get("links", ()))
        before, now = known.pop(each["loc"], None), (each.get("type"), links)
        is_gone = each["change"] == "deleted"
        was_wanted = is_gone if before is None else fits(before)
        if was_wanted or (not is_gone and fits(now)):
            found.append((each["loc"], each["change"]))
        if not is_gone:
            known[each["loc"]] = now
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("query", enough([*TYPED][::-1], 1))
async def test_a_filter_hides_no_end_and_no_leaving_live_or_later(hub, way, query):
    name = await new_set(hub)
    await hub.ask("PATCH", f"/api/sets/{name}", json={"filters": True})
    since = await publish(hub, name, updated("http://example.com/first"))
    changes = typed_history(crc32((query + way).encode()), 60)
    last = {"loc": PAPERS + "last", "change": "deleted"}  # of what never was: it passes
    wanted = [*wanted_of(changes, TYPED[query]), (last["loc"], "deleted")]

    async def publish_all() -> str:
        for at in range(0, len(changes), 7):
            await publish(hub, name, *changes[at : at + 7])
        return await publish(hub, name, last)

    async with asyncio.timeout(PATIENT_SECONDS), asyncio.TaskGroup() as group:
        reading = group.create_task(up_to(WAYS[way], hub, name, query, since, last["loc"]))
        end = await publish_all()
    assert reading.result() == wanted
    assert await heard(WAYS[way], hub, name, query, since, end) == wanted


async def up_to(
    way: Way, hub: RunningHub, name: str, query: str, since: str, last: str
) -> list[Any]:
    """All changes up to one of the last resource."""
    found: list[Any] = []
    cursor = since
    async with aclosing(way(hub, name, query, since)) as told:
        async for part, until, from_ in told:
            assert from_ in (None, cursor), "a gap or a repetition"
            cursor = until
            found += part
            if found and found[-1][0] == last:
                return found
    raise AssertionError("it has ended")


async def test_what_was_published_before_filters_were_allowed_is_not_hidden(hub):
    name = await new_set(hub)
    loc = PAPERS + "1"
    since = await publish(hub, name, updated("http://example.com/first"))
    await publish(hub, name, updated(loc, type=PDF))
    await publish(hub, name, updated(loc, type=HTML))
    status, _ = await hub.ask("PATCH", f"/api/sets/{name}", json={"filters": True})
    assert status == 200
    await publish(hub, name, updated(loc, type=HTML))
    await publish(hub, name, updated(loc, type=PDF))
    end = await publish(hub, name, updated(loc, type="text/plain"))
    for way in WAYS.values():
        found = await heard(way, hub, name, f"type={PDF}", since, end)
        assert len(found) == 4, "all but the one of which it is known that it stayed HTML"


async def test_a_set_whose_filters_were_turned_off_says_how_to_have_them_again(hub):
    name = await new_set(hub)
    await hub.ask("PATCH", f"/api/sets/{name}", json={"filters": True})
    assert (await hub.ask("GET", f"/streams/{name}?type={PDF}"))[0] == 200
    await hub.ask("PATCH", f"/api/sets/{name}", json={"filters": False})
    status, problem = await hub.ask("GET", f"/streams/{name}?type={PDF}")
    assert (status, "rsnotify sets edit SET --filters" in problem["detail"]) == (400, True)
    assert (await hub.ask("GET", f"/streams/{name}?change=created"))[0] == 200


# --- positions -----------------------------------------------------------------------------------

LIVE = ("WebSocket", "WebSocket in JSON", "WebSocket of several sets", "event stream")
WAITING = (*LIVE, "long-poll", "stream events")


@pytest.mark.parametrize("way", WAITING)
async def test_a_reader_is_told_where_it_is_after_a_thousand_changes_that_are_not_for_it(hub, way):
    name = await new_set(hub)
    since = await publish(hub, name, updated("http://example.com/first"))
    query = f"prefix={THESES}"
    reading = asyncio.create_task(told_next(WAYS[way], hub, name, query, since))
    await readers(hub, name, 1)
    await publish(hub, name, *(updated(f"{PAPERS}{number}") for number in range(500)))
    end = await publish(hub, name, *(updated(f"{PAPERS}{number}") for number in range(500)))
    assert await reading == ([], end)


@pytest.mark.parametrize("way", WAYS)
async def test_whoever_comes_later_passes_over_all_that_is_not_for_it(hub, way):
    name = await new_set(hub)
    since = await publish(hub, name, updated("http://example.com/first"))
    await publish(hub, name, *(updated(f"{PAPERS}{number}") for number in range(1_200)))
    end = await publish(hub, name, updated(THESES))
    found = await heard(WAYS[way], hub, name, f"prefix={THESES}", since, end)
    assert found == [(THESES, "updated")]


async def told_next(way: Way, hub: RunningHub, name: str, query: str, since: str) -> Any:
    async with asyncio.timeout(PATIENT_SECONDS), aclosing(way(hub, name, query, since)) as told:
        found: list[Any] = []
        async for changes, until, _ in told:
            found += changes
            if until > since:
                return found, until
    raise AssertionError("it has ended")


async def readers(hub: RunningHub, name: str, number: int) -> None:
    """Wait until so many read a set."""
    async with asyncio.timeout(PATIENT_SECONDS):
        while True:
            _, status = await hub.ask("GET", f"/api/status?name={name}")
            if number_of_readers(status) >= number:
                return
            await asyncio.sleep(0.02)


def number_of_readers(status: dict[str, Any]) -> int:
    (found,) = status["sets"]
    return sum(found["channels"][0]["readers"].values())


# --- what is no filter, and what one may cost ----------------------------------------------------

PLACES = (
    CHANNEL.format("SET"),
    "/streams/SET",
    "/SET/changelist.xml",
    "/channels/change_notification_channel?set=SET",
)
WRONG = {
    "prefix=": "prefix is empty",
    "change=": "change is empty",
    "prefix=/papers/": "it must begin as the loc of a change does, with a scheme",
    "prefix=http://a/%20": "write it as in the loc of changes",
    "change=removed": "it must be one of created, updated, deleted",
    "type=": "type is empty",
    "collection=": "collection is empty",
    "type=*": "it must be a media type such as application/pdf, or image/*",
    "type=application/pdf": "type and collection need a set with filters",
    "collection=http://a/": "--filters`: set",
    "prefixes=http://a/": "unknown parameter 'prefixes'; did you mean prefix?",
    "&".join(f"prefix=http://a/{number}" for number in range(101)): "at most 100 are compared",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("query", WRONG)
async def test_what_is_no_filter_is_refused_everywhere_with_how_to_mend_it(hub, place, query):
    path = place.replace("SET", await new_set(hub))
    address = f"{path}{'&' if '?' in path else '?'}{query}"
    headers = {"Accept": "text/event-stream"} if "channels" in path else {}
    status, problem = await hub.ask("GET", address, headers=headers)
    assert status == 400
    assert WRONG[query] in problem["detail"]
    if "channels" in path:
        code, reason = await close_of(f"ws://127.0.0.1:{hub.port}{address}")
        assert code == 4400
        assert problem["detail"].startswith(reason)


@pytest.mark.parametrize(
    "place",
    [
        "/channels/SET/framework_notification_channel?prefix=http://a/",
        "/streams/SET/framework?prefix=http://a/",
        "/channels/framework_notification_channel?set=SET&change=created",
    ],
)
async def test_a_framework_channel_has_no_filter(hub, place):
    headers = {"Accept": "text/event-stream"}
    path = place.replace("SET", await new_set(hub))
    status, problem = await hub.ask("GET", path, headers=headers)
    assert status == 400
    assert "the framework channel has no filter: leave out" in problem["detail"]


class Askers:
    """Ask from several addresses, and hold what is answered."""

    def __init__(self, hub: RunningHub, answers: AsyncExitStack) -> None:
        self._hub = hub
        self._answers = answers
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def ask(
        self, path: str, headers: dict[str, str] | None = None, by: str = "127.0.0.1"
    ) -> Any:
        if by not in self._sessions:
            connector = aiohttp.TCPConnector(limit=0, local_addr=(by, 0))
            session = aiohttp.ClientSession(connector=connector)
            self._sessions[by] = await self._answers.enter_async_context(session)
        asking = self._sessions[by].get(self._hub.url + path, headers=headers)
        return await self._answers.enter_async_context(asking)


STREAM = {"Accept": "text/event-stream"}


def ways_that_wait(name: str, since: str, query: str) -> list[tuple[str, dict[str, str] | None]]:
    return [
        (f"{CHANNEL.format(name)}?{query}", STREAM),
        (f"/channels/change_notification_channel?set={name}&{query}", STREAM),
        (f"/streams/{name}?live=long-poll&offset={since}&{query}", None),
        (f"/streams/{name}?live=sse&offset={since}&{query}", None),
    ]


async def test_a_filter_more_than_a_channel_may_have_is_refused_on_every_way_that_waits(hub):
    name = await new_set(hub)
    since = await publish(hub, name, updated("http://example.com/first"))
    path = CHANNEL.format(name)
    async with AsyncExitStack() as answers:
        askers = Askers(hub, answers)
        for number, by in enumerate(takers()):
            answer = await askers.ask(f"{path}?prefix=http://a/{number}", STREAM, by)
            assert answer.status == 200
        for address, headers in ways_that_wait(name, since, "prefix=http://a/more"):
            refused = await askers.ask(address, headers)
            assert refused.status == 503
            assert f"readers with {FILTERS} different filters" in await refused.text()
            assert int(refused.headers["Retry-After"]) > 0
        assert (await askers.ask(f"{path}?prefix=http://a/0", STREAM)).status == 200
        assert (await askers.ask(path, STREAM)).status == 200
        for each in (
            f"/{name}/changelist.xml?prefix=http://a/x",
            f"/streams/{name}?change=deleted",
        ):
            assert (await askers.ask(each)).status == 200  # whoever does not wait has no place
    await publish(hub, name, updated("http://example.com/second"))


async def test_one_address_cannot_take_the_filters_of_all_others(hub):
    name = await new_set(hub)
    since = await publish(hub, name, updated("http://example.com/first"))
    path = CHANNEL.format(name)
    async with AsyncExitStack() as answers:
        askers = Askers(hub, answers)
        for number in range(FILTERS_OF_ONE):
            answer = await askers.ask(f"{path}?prefix=http://a/{number}", STREAM)
            assert answer.status == 200
        for address, headers in ways_that_wait(name, since, "prefix=http://a/more"):
            refused = await askers.ask(address, headers)
            assert refused.status == 429
            said = await refused.text()
            assert f"your address has {FILTERS_OF_ONE} different filters" in said
            assert int(refused.headers["Retry-After"]) > 0
        assert (await askers.ask(f"{path}?prefix=http://a/0", STREAM)).status == 200
        others = await askers.ask(f"{path}?prefix=http://a/more", STREAM, "127.0.0.2")
        assert others.status == 200
    await publish(hub, name, updated("http://example.com/second"))


class Sockets:
    """WebSockets from several addresses, held open; each wants what is below an address."""

    def __init__(self, hub: RunningHub, name: str, opened: AsyncExitStack) -> None:
        self._hub, self._name, self._opened = hub, name, opened
        self._url = f"ws://127.0.0.1:{hub.port}{CHANNEL.format(name)}"

    async def open(self, prefix: str, by: str) -> ClientConnection:
        connecting = connect(f"{self._url}?prefix={prefix}", local_addr=(by, 0))
        return await self._opened.enter_async_context(connecting)

    async def refusal(self, prefix: str, by: str) -> tuple[int, str]:
        return await close_of(f"{self._url}?prefix={prefix}", local_addr=(by, 0))

    async def gets(self, socket: ClientConnection, prefix: str) -> bool:
        """Whether what is published below that comes; else it was closed."""
        await publish(self._hub, self._name, updated(prefix))
        try:
            async with asyncio.timeout(PATIENT_SECONDS):
                return f"<loc>{prefix}</loc>" in str(await socket.recv())
        except ConnectionClosed:
            return False


async def test_a_websocket_has_the_last_filter_of_a_channel_and_another_is_refused(hub):
    async with AsyncExitStack() as opened:
        sockets = Sockets(hub, await new_set(hub), opened)
        for number, by in enumerate(takers()):
            last = await sockets.open(f"http://a/{number}.", by)
        code, reason = await sockets.refusal("http://a/more", "127.0.0.1")
        assert (code, f"readers with {FILTERS} different filters" in reason) == (1013, True)
        assert await sockets.gets(last, f"http://a/{FILTERS - 1}.")
        shared = await sockets.open("http://a/0.", "127.0.0.1")
        assert await sockets.gets(shared, "http://a/0.")
        await last.close()

        async def has_room() -> bool:
            more = await sockets.open("http://a/more", "127.0.0.99")
            return await sockets.gets(more, "http://a/more")

        await until(has_room)


async def test_one_address_has_so_many_filters_by_websockets(hub):
    async with AsyncExitStack() as opened:
        sockets = Sockets(hub, await new_set(hub), opened)
        for number in range(FILTERS_OF_ONE):
            last = await sockets.open(f"http://a/{number}.", "127.0.0.1")
        code, reason = await sockets.refusal("http://a/more", "127.0.0.1")
        assert (code, f"your address has {FILTERS_OF_ONE} different" in reason) == (1013, True)
        assert await sockets.gets(last, f"http://a/{FILTERS_OF_ONE - 1}.")
        other = await sockets.open("http://a/more", "127.0.0.2")
        assert await sockets.gets(other, "http://a/more")


@pytest.mark.parametrize("form", ["xml", "json"])
async def test_a_list_with_a_filter_says_of_which_it_is_a_part(hub, form):
    name = await new_set(hub)
    since = await publish(hub, name, updated(f"{PAPERS}1"))
    end = await publish(hub, name, updated(THESES))
    address = f"/{name}/changelist.xml?from={since}&prefix={PAPERS}&format={form}"
    whole = f"{hub.url}/{name}/changelist.xml?from={since}"
    async with aiohttp.ClientSession() as session, session.get(hub.url + address) as answer:
        body = await answer.text()
        assert f'<{whole}>; rel="canonical"' in answer.headers["Link"]
        assert (
            f'<{hub.url}/{name}/capabilitylist.xml>; rel="resourcesync"' in answer.headers["Link"]
        )
        assert answer.headers["Rsnotify-Until"] == end
    if form == "json":
        found = json.loads(body)
        links = {each["rel"]: each["href"] for each in found["links"]}
        assert (found["until"], found["changes"]) == (end, [])
    else:
        links = dict(re.findall(r'<rs:ln rel="(\w+)" href="([^"]+)"/>', body))
    assert links["canonical"] == whole
    assert links["up"] == f"{hub.url}/{name}/capabilitylist.xml"


async def test_pages_of_a_part_lead_on_with_the_filter(hub):
    name = await new_set(hub)
    since = await publish(hub, name, updated("http://example.com/first"))
    await publish(hub, name, *(updated(f"{PAPERS if n % 2 else THESES}{n}") for n in range(8)))
    query = f"prefix={PAPERS}&prefix=http://b/&change=updated"
    address: str | None = f"/{name}/changelist.xml?from={since}&limit=3&{query}"
    found: list[str] = []
    while address:
        _, text = await hub.ask("GET", address)
        found += [loc for loc, _ in ENTRY.findall(text.decode())]
        following = re.findall(r'rel="next" href="([^"]+)"', text.decode())
        address = following[0].replace("&amp;", "&").removeprefix(hub.url) if following else None
    assert found == [f"{PAPERS}{n}" for n in (1, 3, 5, 7)]


async def test_two_filters_of_a_list_have_two_tags_and_each_is_answered_304(hub):
    name = await new_set(hub)
    since = await publish(hub, name, updated(f"{PAPERS}1"))
    tags = []
    async with aiohttp.ClientSession() as session:
        for query in (f"prefix={PAPERS}", f"prefix={THESES}", ""):
            address = f"{hub.url}/{name}/changelist.xml?from={since}&{query}"
            async with session.get(address) as answer:
                tags.append(answer.headers["ETag"])
            async with session.get(address, headers={"If-None-Match": tags[-1]}) as answer:
                assert answer.status == 304
    assert len({*tags}) == 3


async def test_nobody_takes_a_part_of_a_list_for_the_whole(hub):
    """A tool that is given its address says what it is, or goes to the whole set."""
    name = await new_set(hub)
    since = await publish(hub, name, updated(f"{PAPERS}1"))
    await publish(hub, name, updated(f"{PAPERS}2"), updated(f"{THESES}1"))
    part = f"{hub.url}/{name}/changelist.xml?from={since}&prefix={PAPERS}"
    found = await judged(part)
    assert (found.outcome, found.violations) == ("valid", [])
    assert found.kind == f"part of the changelist {hub.url}/{name}/changelist.xml?from={since}"
    web = Web(None, part)
    try:
        offered = await discover(web, part)
    finally:
        await web.close()
    assert offered.url == f"{hub.url}/{name}/capabilitylist.xml"
    assert "prefix" not in str(offered)
