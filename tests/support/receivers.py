"""Subscribers for tests: callbacks on loopback that remember what they were asked and misbehave.

Written on bare sockets, so that a receiver can be as wrong as any in the world.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from rsnotify_client.notification import Received, read_notification
from tests.support.running import RunningHub, until
from tests.support.stream_server import StreamServer


@dataclass(frozen=True)
class ReceivedRequest:
    """One request, as it came."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))

    @property
    def mode(self) -> str | None:
        return self.query.get("hub.mode")

    @cached_property
    def notification(self) -> Received:
        return read_notification(self.body)

    @property
    def locs(self) -> list[str]:
        return [change.loc for change in self.notification.changes]


Behaviour = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


def response(status: str = "204 No Content", body: bytes = b"", **headers: str) -> bytes:
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    length = "" if status.startswith("204") else f"Content-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status}\r\n{length}{head}\r\n".encode() + body


def answers(status: str = "204 No Content", body: bytes = b"", **headers: str) -> Behaviour:
    """Always the same answer."""

    async def behave(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(response(status, body, **headers))

    return behave


def takes(taken: list[ReceivedRequest]) -> Behaviour:
    """Success, and what was taken, apart from all that was refused before."""

    async def behave(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        taken.append(asked)
        writer.write(response())

    return behave


def distant(seconds: float, behave: Behaviour | None = None) -> Behaviour:
    """The same at a distance: what is answered arrives so much later."""
    answer = behave or answers()

    async def late(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await answer(asked, writer)

    return late


async def confirms(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """As a subscriber does that wants what was asked in its name."""
    challenge = asked.query.get("hub.challenge", "")
    writer.write(response("200 OK", challenge.encode()))


class Receiver:
    """A callback; `async with` opens its port."""

    def __init__(
        self,
        *,
        get: Behaviour = confirms,
        post: Behaviour | None = None,
        host: str = "127.0.0.1",
        path: str = "/callback",
        port: int = 0,
    ) -> None:
        self.get = get
        self.post = post or answers()
        self.host = host
        self.path = path
        self.port = port
        self._server = StreamServer(self._serve, host=host, port=port)
        self.asked: list[ReceivedRequest] = []
        self.most_at_once = 0
        self._under_way: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.port = self._server.port
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    @property
    def callback(self) -> str:
        return f"http://{self.host}:{self.port}{self.path}"

    @property
    def verifications(self) -> list[ReceivedRequest]:
        return [asked for asked in self.asked if asked.method == "GET" and asked.mode != "denied"]

    @property
    def denials(self) -> list[ReceivedRequest]:
        return [asked for asked in self.asked if asked.mode == "denied"]

    @property
    def deliveries(self) -> list[ReceivedRequest]:
        return [asked for asked in self.asked if asked.method == "POST"]

    @property
    def locs(self) -> list[str]:
        """Every change received, in order."""
        return [loc for delivery in self.deliveries for loc in delivery.locs]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await _read(reader):
            await self._answer(asked, writer)
            await writer.drain()

    async def _answer(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        path = urlsplit(asked.target).path
        self.asked.append(asked)
        self._under_way[path] = self._under_way.get(path, 0) + 1
        self.most_at_once = max(self.most_at_once, self._under_way[path])
        try:
            await (self.get if asked.method == "GET" else self.post)(asked, writer)
        finally:
            self._under_way[path] -= 1


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (s.partition(":") for s in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return ReceivedRequest(method, target, headers, body)


def topic(hub: RunningHub, set_name: str = "dataset1", kind: str = "change") -> str:
    return f"{hub.url}/channels/{set_name}/{kind}_notification_channel"


async def ask(
    hub: RunningHub, mode: str, url: str, callback: str, **fields: Any
) -> tuple[int, Any]:
    """A request to the hub; `hub_secret="x"` is sent as `hub.secret=x`."""
    form = {"hub.mode": mode, "hub.topic": url, "hub.callback": callback}
    form |= {name.replace("hub_", "hub."): str(value) for name, value in fields.items()}
    return await hub.ask("POST", "/hub", data=form, headers={"Authorization": ""})


async def subscribe(
    hub: RunningHub, receiver: Receiver, set_name: str = "dataset1", **fields: Any
) -> dict[str, Any]:
    """Subscribe and be verified; the subscription as the operator sees it.

    A renewal asks for another lease: nothing else shows that it was verified.
    """
    before = await subscription(hub, receiver, set_name)
    assert before is None or "hub_lease_seconds" in fields
    status, text = await ask(hub, "subscribe", topic(hub, set_name), receiver.callback, **fields)
    assert status == 202, text

    async def verified() -> Any:
        found = await subscription(hub, receiver, set_name)
        if found is None or before is None:
            return found
        left, was = found["lease_seconds_left"], before["lease_seconds_left"]
        return found if left > was or left <= fields["hub_lease_seconds"] < was else None

    return await until(verified)


async def subscription(
    hub: RunningHub, receiver: Receiver, set_name: str = "dataset1"
) -> dict[str, Any] | None:
    for found in (await hub.ask("GET", "/api/subscriptions"))[1]:
        if (found["callback"], found["set"]) == (receiver.callback, set_name):
            return found
    return None


async def first_of(taken: list[ReceivedRequest]) -> ReceivedRequest:
    """Wait for it."""

    async def is_there() -> bool:
        return bool(taken)

    await until(is_there)
    return taken[0]


async def has(receiver: Receiver, count: int, *, of: str = "deliveries") -> list[ReceivedRequest]:
    """Wait until the receiver has had so many; then all it has had."""

    async def enough() -> bool:
        return len(getattr(receiver, of)) >= count

    await until(enough)
    return getattr(receiver, of)
