"""The JavaScript client against a real hub: killed, restarted, private, without old history."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from clients.javascript.tests.programs import NO_DENO, Reader, deno, nodes
from rsnotify.resourcesync.notification import FROM_HEADER
from rsnotify.resourcesync.xml_writer import Entry, Md
from tests.protocol.test_node_readers import node_modules
from tests.support.amount import enough
from tests.support.cutting_proxy import CuttingProxy
from tests.support.sources import CAPABILITIES, Source, rendered

AT = "2026-11-20T00:00:01.000000Z"
NOTIFICATION = (
    '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:rs="http://www.openarchives.org/rs/terms/"><rs:md capability="change-notification" '
    'from="2026-11-20T00:00:00.000000Z" until="{until}"/><url><loc>http://example.com/1</loc>'
    '<rs:md change="updated" datetime="{until}"/></url></urlset>'
)


@pytest.fixture
def readers_of(request: pytest.FixtureRequest) -> Any:
    """Every way in which a program reads: a WebSocket, an event stream, long polls, both Nodes."""

    def made(url: str) -> list[Reader]:
        others = [
            Reader(url, program=(node,), transport=transport)
            for node in nodes()
            for transport in ("sse", "long-poll")
        ]
        return [Reader(url, transport="websocket"), *others]

    return made


@pytest.mark.evidence
async def test_a_killed_hub_costs_no_change_and_repeats_none(hub, readers_of):
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(each) for each in readers_of(hub.channel())]
        for reader in readers:
            await reader.live()
        await hub.publish("http://example.com/1", "http://example.com/2")
        for reader in readers:
            assert await reader.changes(1) == ["1"]
        await hub.kill()
        await hub.start()
        await hub.publish("http://example.com/3")
        await hub.publish("http://example.com/4")
        for reader in readers:
            assert await reader.changes(3) == ["2", "3", "4"]


@pytest.mark.parametrize("transport", enough(["websocket", "sse", "long-poll"], 1))
async def test_only_what_is_wanted_comes_while_a_hub_is_killed(hub, transport):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"filters": True})
    wanted = {"prefix": ["http://example.com/a", "http://example.com/c"], "type": "image/*"}
    async with Reader(hub.url, transport=transport, **wanted) as reader:
        await reader.live()
        names = ("a1", "b1", "a2", "c1")
        await hub.publish(*(f"http://example.com/{each}" for each in names), type="image/png")
        assert await reader.changes(3) == ["a1", "a2", "c1"]
        await hub.kill()
        await hub.start()
        await hub.publish("http://example.com/a1", type="text/html")
        await hub.publish("http://example.com/a2", "http://example.com/b3", type="image/gif")
        await hub.publish("http://example.com/c1", change="deleted")
        assert await reader.changes(3) == ["a1", "a2", "c1"]


async def test_what_is_no_filter_is_said_by_the_hub(hub):
    async with Reader(hub.url, type="*") as reader:
        failed = await reader.line(lambda line: "failed" in line)
    assert failed["failed"] == "Rejected"
    assert "it must be a media type" in failed["message"]


@pytest.mark.evidence
@pytest.mark.skipif(deno() is None, reason=NO_DENO)
async def test_in_deno_a_killed_hub_costs_no_change_either(hub):
    program = (deno(), "run", "--allow-net", "--allow-read")
    async with (
        Reader(hub.channel(), program=program, transport="websocket") as socket,
        Reader(hub.url, program=program, transport="sse") as stream,
        Reader(hub.url, program=program, transport="long-poll") as polls,
    ):
        for reader in (socket, stream, polls):
            await reader.live()
        await hub.kill()
        await hub.start()
        await hub.publish("http://example.com/1", "http://example.com/2")
        for reader in (socket, stream, polls):
            assert await reader.changes(2) == ["1", "2"]


@pytest.fixture(scope="session")
def ws() -> str:
    """The package that gives a Node without WebSockets one."""
    return str(node_modules() / "ws/wrapper.mjs")


async def test_with_the_package_ws_a_killed_hub_costs_no_change_either(hub, ws):
    async with Reader(hub.channel(), program=(nodes()[-1],), WebSocket=ws) as reader:
        assert (await reader.live())["transport"] == "websocket"
        await hub.kill()
        await reader.line(lambda line: line.get("error"))
        await hub.start()
        await reader.live()
        await hub.publish("http://example.com/1")
        assert await reader.changes(1) == ["1"]


async def test_with_the_package_ws_a_refused_websocket_leaves_the_event_stream(ws):
    async def channel(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade") == "websocket":
            return web.Response(status=403)
        answer = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                FROM_HEADER: "2026-11-20T00:00:00.000000Z",
            }
        )
        await answer.prepare(request)
        await answer.write(f"data: {NOTIFICATION.format(until=AT)}\n\n".encode())
        return answer

    async with Source() as source:
        source.handlers["/channel"] = channel
        url = source.url.replace("http", "ws") + "/channel"
        async with Reader(url, program=(nodes()[-1],), WebSocket=ws) as reader:
            assert (await reader.live())["transport"] == "sse"
            assert await reader.changes(1) == ["1"]


@pytest.mark.parametrize("websocket", enough(["refused", "ignored"], 1))
async def test_long_polls_pass_where_the_others_are_cut(hub, websocket):
    async with (
        CuttingProxy(hub.port, websocket, "refused") as proxy,
        Reader(proxy.of(hub.channel())) as reader,
    ):
        assert (await reader.live())["transport"] == "long-poll"
        await hub.publish("http://example.com/1", "http://example.com/2")
        assert await reader.changes(2) == ["1", "2"]
        await hub.kill()
        await hub.start()
        await hub.publish("http://example.com/3")
        assert await reader.changes(1) == ["3"]


async def test_a_set_that_ends_is_told_alike_by_long_polls(hub):
    async with Reader(hub.channel(), transport="long-poll") as reader:
        await reader.live()
        await hub.ask("DELETE", "/api/sets/dataset1")
        assert (await reader.line(lambda line: "failed" in line))["failed"] == "Rejected"


async def test_every_address_of_a_set_leads_to_its_channel(hub):
    paths = ("", "/.well-known/resourcesync", "/dataset1", "/dataset1/capabilitylist.xml")
    async with AsyncExitStack() as stack:
        opened = [Reader(hub.url + path) for path in paths]
        for reader in [await stack.enter_async_context(each) for each in opened]:
            live = await reader.live()
            assert live["transport"] == "websocket"
            assert live["position"] is not None


async def test_a_set_that_a_hub_has_not_leads_to_no_other(hub):
    for path in ("/other", "/other/capabilitylist.xml"):
        async with Reader(hub.url + path) as reader:
            failed = await reader.line(lambda line: line.get("failed"))
        assert failed["failed"] == "Rejected"
        assert failed["message"].startswith(f"{hub.url}{path}: there is no")


async def test_whoever_begins_before_all_history_gets_all_of_it(hub):
    await hub.publish(*(f"http://example.com/{number}" for number in range(3)))
    for way in ("websocket", "sse", "long-poll"):
        async with Reader(hub.channel(), position="2020-01-01", transport=way) as reader:
            assert await reader.changes(3) == ["0", "1", "2"]


async def test_a_private_set_is_read_with_a_token_and_refused_without(hub):
    await hub.ask("PATCH", "/api/sets/dataset1", json={"private": True})
    wanted = {"sets": ["dataset1"], "rights": ["read"]}
    _, made = await hub.ask("POST", "/api/tokens", json=wanted)
    async with (
        Reader(hub.channel()) as without,
        Reader(hub.channel(), token=made["token"]) as socket,
        Reader(hub.channel(), token=made["token"], transport="sse") as stream,
        Reader(hub.channel(), token=made["token"], transport="long-poll") as polls,
    ):
        assert (await without.line(lambda line: "failed" in line))["failed"] == "Rejected"
        for reader in (socket, stream, polls):
            await reader.live()
        await hub.publish("http://example.com/1")
        for reader in (socket, stream, polls):
            assert await reader.changes(1) == ["1"]
        await hub.ask("DELETE", f"/api/tokens/{made['id']}")
        for reader in (socket, stream, polls):
            assert (await reader.line(lambda line: "failed" in line))["failed"] == "Rejected"


async def test_a_websocket_that_is_dead_is_noticed_and_left():
    """The first one brings nothing, though the Source goes on; the second one does."""
    sockets: list[web.WebSocketResponse] = []

    async def channel(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade") != "websocket":
            begins = AT if len(sockets) == 1 else "2026-11-20T00:00:00.000000Z"
            begins = request.query.get("from", begins)
            answer = web.StreamResponse(
                headers={"Content-Type": "text/event-stream", FROM_HEADER: begins}
            )
            await answer.prepare(request)
            return answer
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        sockets.append(socket)
        if len(sockets) > 1:
            await socket.send_str(NOTIFICATION.format(until=AT))
        await socket.receive()
        return socket

    async with Source() as source:
        source.handlers["/channel"] = channel
        url = source.url.replace("http", "ws") + "/channel"
        async with Reader(url, quietSeconds=0.1) as reader:
            await reader.live()
            assert await reader.changes(1) == ["1"]
    assert len(sockets) == 2


async def test_a_dead_websocket_that_never_says_where_it_begins_is_noticed_by_the_lists():
    """While the list tells nothing new, the connection stays."""
    sockets: list[web.WebSocketResponse] = []

    async def channel(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade") != "websocket":
            return web.Response(status=404)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        sockets.append(socket)
        await socket.receive()
        return socket

    async with Source() as source:
        entry = Entry(
            source.url.replace("http", "ws") + "/channel", md=Md(capability="change-notification")
        )
        lists = Entry(source.loc("changelist.xml"), md=Md(capability="changelist"))
        source.documents[CAPABILITIES] = rendered("capabilitylist", [entry, lists])
        source.handlers["/channel"] = channel
        source.change("1", b"content")
        async with Reader(source.url + CAPABILITIES, quietSeconds=0.1) as reader:
            await reader.live()
            async with asyncio.timeout(20):
                while source.asked["/changelist.xml"] < 5:
                    await asyncio.sleep(0.01)
            assert len(sockets) == 1
            source.change("2", b"content")
            assert await reader.changes(1) == ["2"]
    assert len(sockets) == 2


async def test_a_source_of_websockets_alone_is_followed_and_its_lists_fill_the_gap():
    """As version 0.8 has it: no event stream, and 4410 for a cursor that is too old."""
    cursors: list[str | None] = []

    async def channel(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade") != "websocket":
            return web.Response(status=404)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        cursors.append(request.query.get("from"))
        if len(cursors) == 1:
            await socket.close(code=4410, message=b"begin at the index")
            return socket
        await socket.send_str(NOTIFICATION.format(until="2026-11-21T00:00:00.000000Z"))
        await socket.receive()
        return socket

    async with Source() as source:
        change = source.change("2", b"content")
        entry = Entry(
            source.url.replace("http", "ws") + "/channel", md=Md(capability="change-notification")
        )
        lists = Entry(source.loc("changelist.xml"), md=Md(capability="changelist"))
        source.documents[CAPABILITIES] = rendered("capabilitylist", [entry, lists])
        source.handlers["/channel"] = channel
        url = source.url + CAPABILITIES
        async with Reader(url, position=str(source.at)) as reader:
            assert await reader.changes(2) == ["2", "1"]
    assert cursors == [str(source.at), change.datetime]


@pytest.mark.parametrize(
    ("start", "transport", "is_in_head"),
    enough(
        [
            pytest.param("/news", "websocket", True),
            pytest.param(CAPABILITIES, "sse", True),
            pytest.param(CAPABILITIES, "websocket", True),
            pytest.param("/news", "sse", False),
        ],
        2,
    ),
)
async def test_a_topic_at_the_sources_own_address_is_followed_by_its_hub(
    hub, start, transport, is_in_head
):
    async with Source() as source:
        topic = source.loc("news")
        status, _ = await hub.ask("PATCH", "/api/sets/dataset1", json={"topic": topic})
        assert status < 300
        head = {"Link": f'<{topic}>; rel="self", <{hub.url}/hub>; rel="hub"'} if is_in_head else {}
        links = f'<link rel="hub" href="{hub.url}/hub"><link rel=self href="/news">'
        text = "<html>" if is_in_head else links

        async def page(_: web.Request) -> web.StreamResponse:
            return web.Response(text=text, content_type="text/html", headers=head)

        source.handlers["/news"] = page
        named = Entry(topic, md=Md(capability="change-notification"))
        source.documents[CAPABILITIES] = rendered("capabilitylist", [named])
        async with Reader(source.url + start, transport=transport) as reader:
            await reader.live()
            await hub.publish("http://example.com/1")
            assert await reader.changes(1) == ["1"]
