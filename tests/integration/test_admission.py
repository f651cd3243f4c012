"""What happens to a set, or a token, after a reader was admitted and before it has joined."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.websockets import WebSocket

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.tokens import Token, Tokens
from rsnotify.channels.channels import Channels
from rsnotify.channels.event_stream import Sse
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.socket_reader import SocketReader
from rsnotify.channels.websocket_endpoint import READER, WebSocketEndpoint
from rsnotify.errors import NoSuchSet
from rsnotify.http.extensions import HAND_OVER
from rsnotify.live.feed import Feed
from rsnotify.redis_client import Client
from rsnotify.resourcesync.notification import ChannelName, Notification
from rsnotify.websub.subscribe_endpoint import Topic
from tests.support.hubs import hub_on, submission
from tests.support.raw import Raw, close
from tests.support.running import PATIENT_SECONDS

ADMIN, READS = "the-admin-token", "a-token-that-reads"
Meanwhile = Callable[[], Awaitable[object]]


class Door:
    """The channels of a hub, where a peer can be held between its admission and its joining."""

    def __init__(self, client: Client) -> None:
        self.hub = hub_on(client)
        self.tokens = Tokens(client)
        self.access = Access(self.tokens, ADMIN)
        self.channels = Channels(self.hub, self.access, Keepalive(send_timeout_seconds=60))

    async def publish(self, name: str, loc: str) -> None:
        await self.hub.publish(ChannelName(name, "change"), submission(loc))
        await self.hub.following.read_new()


@pytest.fixture
async def door(client: Client) -> Door:
    """With the public sets a and b, and the private set p, which a token may read."""
    door = Door(client)
    for name in "abp":
        await door.hub.add_set(name)
    await door.hub.edit_set("p", {"private": True})
    await door.tokens.create(READS, Token("reads", ("p",), "now", ("read",)))
    return door


def scope_of(sets: Sequence[str], secret: str) -> dict[str, Any]:
    """One set in the path, or several in the query."""
    headers = [(b"accept", b"text/event-stream")]
    if secret:
        headers.append((b"authorization", f"Bearer {secret}".encode()))
    path = {"kind": "change"} | ({"set": sets[0]} if len(sets) == 1 else {})
    query = "" if len(sets) == 1 else "&".join(f"set={name}" for name in sets)
    asked = {"path_params": path, "query_string": query.encode(), "headers": headers}
    return asked | {"path": "/channels", "scheme": "http", "server": ("h", 80), "client": ("c", 1)}


async def by_websocket(
    channels: Channels, scope: dict[str, Any], transport: asyncio.Transport, meanwhile: Meanwhile
) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        assert message["type"] == "websocket.accept", message
        await meanwhile()

    def take_reader(_: object) -> SocketReader:
        reader = SocketReader(transport, ReaderInput(), is_deflated=False)
        reader.take_over()
        return reader

    taking = {"type": "websocket", "subprotocols": [], "extensions": {READER: take_reader}}
    await WebSocketEndpoint(channels).open(WebSocket(scope | taking, receive, send))


async def by_event_stream(
    channels: Channels, scope: dict[str, Any], transport: asyncio.Transport, meanwhile: Meanwhile
) -> None:
    async def send(message: Any) -> None:
        if message["type"] == HAND_OVER:
            message["take"](transport, is_chunked=False)

    asked = scope | {"type": "http", "method": "GET", "extensions": {HAND_OVER: {}}}
    response = await Sse(channels, is_compressed=False).stream(Request(asked))
    await meanwhile()
    await response(asked, None, send)


Enter = Callable[[Channels, dict[str, Any], asyncio.Transport, Meanwhile], Awaitable[None]]
WAYS = pytest.mark.parametrize("enter", [by_websocket, by_event_stream])
SETS = pytest.mark.parametrize("sets", ["a", "ba"])


@asynccontextmanager
async def entered(
    door: Door, enter: Enter, sets: str, secret: str, meanwhile: Meanwhile
) -> AsyncIterator[Raw]:
    """The other side of a connection that was admitted, then this happened, then it joined."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    peer = Raw(*await asyncio.open_connection(sock=theirs))
    try:
        await enter(door.channels, scope_of(sets, secret), transport, meanwhile)
        yield peer
    finally:
        peer.writer.transport.abort()
        transport.abort()


async def end_of(peer: Raw, enter: Enter) -> tuple[int | None, str]:
    """How the hub ends the connection, without having told anything."""
    if enter is by_websocket:
        found = await peer.frame()
        assert found.opcode == 8, found
        await peer.send(close(1000))
        return int.from_bytes(found.data[:2]), found.data[2:].decode()
    assert await peer.body() == b""
    return None, ""


@WAYS
@SETS
async def test_who_was_admitted_to_a_public_set_does_not_follow_it_when_it_is_private(
    door, enter, sets
):
    async def meanwhile() -> None:
        await door.hub.edit_set("a", {"private": True})

    async with entered(door, enter, sets, "", meanwhile) as peer:
        await door.publish("a", "secret")
        code, reason = await end_of(peer, enter)
    if enter is by_websocket:
        assert (code, reason) == (1013, "set 'a' has become private: reconnect with a token")
    assert len(door.channels.limits.addresses) == 0


@WAYS
@SETS
@pytest.mark.parametrize("again", [None, {}, {"private": True}])
async def test_who_was_admitted_to_a_set_does_not_follow_another_one_of_its_name(
    door, enter, sets, again
):
    async def meanwhile() -> None:
        await door.hub.remove_set("a")
        if again is not None:
            await door.hub.add_set("a")
            await door.hub.edit_set("a", again)

    async with entered(door, enter, sets, "", meanwhile) as peer:
        if again is not None:
            await door.publish("a", "another")
        code, reason = await end_of(peer, enter)
    if enter is by_websocket:
        assert (code, reason) == (4404, "there is no set 'a'")


@WAYS
@pytest.mark.parametrize(("sets", "secret"), [("p", READS), ("p", ADMIN), ("ap", READS)])
async def test_who_has_a_right_to_a_private_set_follows_it_whatever_is_chosen_meanwhile(
    door, enter, sets, secret
):
    async def meanwhile() -> None:
        await door.hub.edit_set("p", {"private": False})
        await door.hub.edit_set("p", {"private": True, "describedby": "http://example.com/p"})

    async with entered(door, enter, sets, secret, meanwhile) as peer:
        await door.publish("p", "for-readers")
        async with asyncio.timeout(PATIENT_SECONDS):
            assert b"for-readers" in await peer.reader.readuntil(b"</urlset>")


@WAYS
async def test_a_set_that_becomes_private_while_the_token_is_looked_up_is_not_followed(door, enter):
    """The token, which another set needs, has no right to this one."""
    find = door.tokens.find

    async def find_late(secret: str) -> Token | None:
        await door.hub.edit_set("a", {"private": True})
        return await find(secret)

    door.tokens.find = find_late

    async def nothing() -> None:
        pass

    async with entered(door, enter, "ap", READS, nothing) as peer:
        await door.publish("a", "told to nobody")
        code, _ = await end_of(peer, enter)
    assert code in (1013, None)


@WAYS
async def test_a_token_that_is_revoked_meanwhile_ends_its_reader(door, enter):
    async def meanwhile() -> None:
        await door.tokens.revoke("reads")

    async with entered(door, enter, "p", READS, meanwhile) as peer:
        await door.channels.revocations.check()
        code, _ = await end_of(peer, enter)
    assert code == (1008 if enter is by_websocket else None)


async def test_a_change_that_came_after_a_set_became_private_is_not_told_without_a_token(
    door, monkeypatch
):
    topic, newest_notification = (
        Topic(door.hub, door.access, BaseUrl("http://h")),
        door.hub.newest_notification,
    )

    async def meanwhile(feed: Feed) -> Notification | None:
        await door.hub.edit_set("a", {"private": True})
        await door.publish("a", "secret")
        return await newest_notification(feed)

    monkeypatch.setattr(door.hub, "newest_notification", meanwhile)
    asked = scope_of("a", "") | {"type": "http", "method": "GET", "extensions": {HAND_OVER: {}}}
    with pytest.raises(NoSuchSet, match="no set 'a' that can be read without a token"):
        await topic.get(Request(asked))
    published = await newest_notification(door.hub.feed(ChannelName("a", "change")))
    assert published is not None
