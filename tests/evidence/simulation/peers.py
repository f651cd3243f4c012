"""Who speaks to the hubs of a world: Sources, readers, receivers of WebSub, pollers of lists.

Each remembers what it was answered or sent, for the judge.
"""

import asyncio
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.uri import parse_uri

from tests.evidence.simulation.world import HUB_PORT, TOKEN, World

ANSWER_SECONDS = 10.0
AGAIN_SECONDS = 0.3
ENTRY = re.compile(rb"<url>.*?<loc>http://example.com/([^<]+)</loc>.*?</url>", re.DOTALL)
AT = re.compile(rb'<rs:md [^>]*?at="([^"]+)"')
DATETIME = re.compile(rb' datetime="([^"]+)"')
INTERVAL = re.compile(rb'<rs:md [^>]*?from="([^"]+)" until="([^"]+)"')


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Unreachable(Exception):
    """No answer came: nobody knows what has happened."""


async def ask(
    hub: str,
    method: str,
    path: str,
    body: bytes = b"",
    token: str | None = TOKEN,
    **headers: str,
) -> Answer:
    """One request on a connection of its own."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {hub}:{HUB_PORT}", "Connection: close"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body or method in ("POST", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    writer = None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(hub, HUB_PORT)
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            return _read(await reader.read())
    except (OSError, TimeoutError, ValueError, IndexError) as error:
        raise Unreachable(repr(error)) from error
    finally:
        if writer is not None:
            writer.transport.abort()


def _read(data: bytes) -> Answer:
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        raise ValueError("the answer was cut")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rest)
    }
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    elif len(body) < int(headers.get("content-length", "0")):
        raise ValueError("the answer was cut")
    return Answer(int(first.split()[1]), headers, body)


def _joined(body: bytes) -> bytes:
    parts = []
    while True:
        size, found, body = body.partition(b"\r\n")
        if not found:
            raise ValueError("the answer was cut")
        count = int(size, 16)
        if not count:
            return b"".join(parts)
        parts.append(body[:count])
        body = body[count + 2 :]


class Source:
    """Publishes, and repeats a request with its key until it is answered."""

    def __init__(self, world: World, hubs: Iterable[str], set_name: str = "dataset1") -> None:
        self._world = world
        self._hubs = [*hubs]
        self._set = set_name
        self._count = 0
        self.acknowledged: dict[str, tuple[str, str]] = {}  # by key: the interval of its answer
        self.locs: dict[str, list[str]] = {}  # of each key
        self.datetime: str | None = None  # that its changes are said to have
        self.tries: dict[str, int] = {}

    def new(self, changes: int = 1, prefix: str = "r") -> str:
        """A request that is not sent yet; its key."""
        self._count += 1
        key = f"{prefix}{self._count}"
        self.locs[key] = [f"{key}-{number}" for number in range(changes)]
        return key

    async def send(
        self, key: str, hub: str | None = None, *, keyless: bool = False
    ) -> Answer | None:
        """Once; None if nobody knows whether it was done."""
        hub = hub or self._world.chance.choice(self._hubs)
        changes = [
            {"loc": f"http://example.com/{loc}", "change": "updated"} for loc in self.locs[key]
        ]
        if self.datetime is not None:
            changes = [each | {"datetime": self.datetime} for each in changes]
        self.tries[key] = self.tries.get(key, 0) + 1
        path = f"/api/sets/{self._set}/changes"
        headers = {} if keyless else {"Idempotency_Key": key}
        try:
            answer = await ask(
                hub,
                "POST",
                path,
                json.dumps(changes).encode(),
                Content_Type="application/json",
                **headers,
            )
        except Unreachable as error:
            self._world.note("source", f"{key} at {hub}: {error}")
            return None
        self._world.note("source", f"{key} at {hub}: {answer.status}")
        if answer.status in (200, 201):
            said = answer.json()
            self.acknowledged[key] = (said["from"], said["until"])
        return answer

    async def publish(self, key: str, hub: str | None = None) -> None:
        """Until it is acknowledged."""
        while True:
            answer = await self.send(key, hub)
            if answer is not None and answer.status in (200, 201):
                return
            await asyncio.sleep(AGAIN_SECONDS * (0.5 + self._world.chance.random()))


class Heard(NamedTuple):
    """One notification."""

    from_: str
    until: str
    locs: list[str]
    when: float


class Reader:
    """Follows a channel by WebSocket; comes back with its cursor whenever it is cut off."""

    def __init__(
        self,
        world: World,
        name: str,
        hubs: Iterable[str],
        *,
        set_name: str = "dataset1",
        token: str | None = TOKEN,
        cursor: str | None = None,
        wants: str = "",
    ) -> None:
        self.name = name
        self.wants = wants  # only changes of resources whose names begin so
        self.cursor = cursor
        self.began: str | None = cursor
        self.story: list[Heard] = []
        self.faults: list[str] = []
        self.told: list[str] = []  # where it stood when it was told that what follows is gone
        self.before: list[Heard] = []  # what it has read until it was told
        self.ends: list[str] = []  # how each connection ended
        self.is_slow = False
        self.stays = inf  # so many notifications; then it leaves, and comes back
        self._world = world
        self._hubs = [*hubs]
        self._set = set_name
        self._token = token
        self._transport: Any = None
        self._leaves_at = inf

    def takes(self, loc: str) -> bool:
        return loc.startswith(self.wants)

    def _query(self, **asked: str) -> str:
        """In the one order and encoding that a stream takes for one question."""
        if self.wants:
            asked["prefix"] = f"http://example.com/{self.wants}"
        pairs = sorted((name, quote(value, safe="")) for name, value in asked.items() if value)
        return "&".join(f"{name}={value}" for name, value in pairs)

    def follow(self) -> asyncio.Task[None]:
        host = self._world.host(self.name)
        return self._world.run_on(host, self._follow(), f"reader {self.name}")

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _follow(self) -> None:
        while True:
            hub = self._world.chance.choice(self._hubs)
            self._leaves_at = len(self.story) + self.stays
            try:
                await self._connect(hub)
            except (OSError, Unreachable) as error:
                self.ends.append(repr(error))
            await asyncio.sleep(AGAIN_SECONDS * self._world.chance.random())

    async def _connect(self, hub: str) -> None:
        path = f"/channels/{self._set}/change_notification_channel"
        query = self._query(**{"from": self.cursor or ""})
        protocol = ClientProtocol(parse_uri(f"ws://{hub}:{HUB_PORT}{path}?{query}"))
        request = protocol.connect()
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        reader, writer = await asyncio.open_connection(hub, HUB_PORT)
        self._transport = writer.transport
        protocol.send_request(request)
        text = bytearray()
        try:
            while True:
                for data in protocol.data_to_send():
                    if data:
                        writer.write(data)
                    else:
                        return
                if self.is_slow:
                    await asyncio.sleep(0.05)
                data = await reader.read(4096)
                if data:
                    protocol.receive_data(data)
                else:
                    protocol.receive_eof()
                for event in protocol.events_received():
                    self._event(event, text)
                if not data or self._is_at_its_end():
                    return
        finally:
            code = protocol.close_rcvd.code if protocol.close_rcvd else "cut"
            self.ends.append(f"{hub}: {code}")
            self._world.note(self.name, f"left {hub}: {code}")
            writer.transport.abort()
            self._transport = None
            if code == 4410:
                self._begin_anew()

    def _begin_anew(self) -> None:
        """It was told that what follows its cursor is gone: a Destination takes what there is now
        from the lists, and begins behind it."""
        self.told.append(f"{self.cursor}")
        self.before += self.story
        self.story = []
        self.cursor = self.began = None

    def _event(self, event: Any, text: bytearray) -> None:
        if isinstance(event, Response):
            self._world.note(self.name, f"answered {event.status_code}")
            if event.status_code == 410:
                self._begin_anew()
            if event.status_code != 101:
                raise Unreachable(f"status {event.status_code}")
            if self.cursor is None:
                self.cursor = self.began = event.headers["Rsnotify-From"]
        elif isinstance(event, Frame) and event.opcode in (Opcode.TEXT, Opcode.CONT):
            text += event.data
            if event.fin:
                self._hear(bytes(text))
                text.clear()

    def _is_at_its_end(self) -> bool:
        """Whether it has read enough for now."""
        return len(self.story) >= self._leaves_at

    def _hear(self, payload: bytes) -> None:
        found = INTERVAL.search(payload)
        if found is None:
            return self.faults.append(f"no interval in {payload[:200]!r}")
        from_, until = (each.decode() for each in found.groups())
        if self.cursor != from_:
            self.faults.append(f"after {self.cursor} came {from_}")
        self.cursor = until
        locs = [each.decode() for each in ENTRY.findall(payload)]
        self.story.append(Heard(from_, until, locs, self._world.now()))
        self._world.note(self.name, f"read {locs} until {until}")
        return None


class StreamReader(Reader):
    """The same by an event stream, as browsers read it: the id of the last event is its cursor."""

    async def _connect(self, hub: str) -> None:
        path = f"/channels/{self._set}/change_notification_channel?{self._query()}"
        lines = [f"GET {path} HTTP/1.1", f"Host: {hub}:{HUB_PORT}", "Accept: text/event-stream"]
        if self._token is not None:
            lines.append(f"Authorization: Bearer {self._token}")
        if self.cursor is not None:
            lines.append(f"Last-Event-ID: {self.cursor}")
        reader, writer = await asyncio.open_connection(hub, HUB_PORT)
        self._transport = writer.transport
        why = "cut"
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode())
            status, begins = self._head(await reader.readuntil(b"\r\n\r\n"))
            self._world.note(self.name, f"answered {status}")
            if status == 410:
                self._begin_anew()
            if status != 200:
                raise Unreachable(f"status {status}")
            if self.cursor is None:
                self.cursor = self.began = begins
            why = await self._events(reader)
        except asyncio.IncompleteReadError:
            pass
        finally:
            self.ends.append(f"{hub}: {why}")
            self._world.note(self.name, f"left {hub}: {why}")
            writer.transport.abort()
            self._transport = None

    @staticmethod
    def _head(data: bytes) -> tuple[int, str]:
        begins = re.search(rb"(?i)rsnotify-from: (\S+)", data)
        return int(data.split()[1]), begins[1].decode() if begins else ""

    async def _events(self, reader: asyncio.StreamReader) -> str:
        """Each chunk is read to its end; an event ends with an empty line."""
        rest = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            if self.is_slow:
                await asyncio.sleep(0.05)
            rest += (await reader.readexactly(size + 2))[:-2]
            *events, rest = rest.split(b"\n\n")
            for event in events:
                self._event_of(event.split(b"\n"))
            if self._is_at_its_end():
                return "has read enough"
        return "the hub ended it"

    def _event_of(self, lines: list[bytes]) -> None:
        data = [line.removeprefix(b"data: ") for line in lines if line.startswith(b"data:")]
        ids = [line.removeprefix(b"id: ").decode() for line in lines if line.startswith(b"id:")]
        if data:
            self._hear(b"\n".join(data))
        if ids and ids[-1] != self.cursor:
            self.faults.append(f"an event has the id {ids[-1]} at {self.cursor}")


class PollReader(Reader):
    """The same by long polls, of the channel as a Durable Stream: its offset is its cursor."""

    async def _connect(self, hub: str) -> None:
        reader, writer = await asyncio.open_connection(hub, HUB_PORT)
        self._transport = writer.transport
        why, before = "cut", 0
        try:
            while not self._is_at_its_end():
                live = "long-poll" if self.cursor else ""
                echoed = str(before) if before else ""
                query = self._query(cursor=echoed, live=live, offset=self.cursor or "now")
                writer.write(self._request(hub, query))
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_number(LENGTH, head))
                self._answered(int(head.split()[1]), head, body)
                cursor = _number(POLL_CURSOR, head)
                if before and cursor <= before:
                    self.faults.append(f"the stream's cursor {cursor} came after {before}")
                before = cursor
            why = "has read enough"
        except asyncio.IncompleteReadError:
            pass
        finally:
            self.ends.append(f"{hub}: {why}")
            self._world.note(self.name, f"left {hub}: {why}")
            writer.transport.abort()
            self._transport = None

    def _request(self, hub: str, query: str) -> bytes:
        lines = [f"GET /streams/{self._set}?{query} HTTP/1.1", f"Host: {hub}:{HUB_PORT}"]
        if self._token is not None:
            lines.append(f"Authorization: Bearer {self._token}")
        return "\r\n".join([*lines, "", ""]).encode()

    def _answered(self, status: int, head: bytes, body: bytes) -> None:
        self._world.note(self.name, f"answered {status}")
        if status == 410:
            self._begin_anew()
        if status not in (200, 204):
            raise Unreachable(f"status {status}")
        offset = NEXT_OFFSET.search(head)
        assert offset is not None, head
        until, from_ = offset[1].decode(), self.cursor
        if from_ is None:
            self.cursor = self.began = until
            return
        found = json.loads(body or b"[]")
        if not found and until != from_ and not self.wants:
            self.faults.append(f"without a change it went from {from_} to {until}")
        self.cursor = until
        if found:
            locs = [each["loc"].rpartition("/")[2] for each in found]
            self.story.append(Heard(from_, until, locs, self._world.now()))
            self._world.note(self.name, f"read {locs} until {until}")


NEXT_OFFSET = re.compile(rb"(?i)\r\nstream-next-offset: (\S+)")
POLL_CURSOR = re.compile(rb"(?i)\r\nstream-cursor: (\d+)")
LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")


def _number(pattern: re.Pattern[bytes], head: bytes) -> int:
    found = pattern.search(head)
    return int(found[1]) if found is not None else 0


class Poller:
    """Asks a hub for its Resource List again and again: each one read is whole."""

    def __init__(
        self, world: World, hub: str, source: Source, *, takes: bool = True, every: float = 0.2
    ) -> None:
        self.faults: list[str] = []
        self.lists = 0
        self._world, self._hub, self._source = world, hub, source
        self._takes, self._every = takes, every

    def poll(self) -> asyncio.Task[None]:
        return self._world.run_on(self._world.host("poller"), self._poll(), "poller")

    async def _poll(self) -> None:
        while True:
            with suppress(Unreachable):
                if self._takes:
                    await ask(self._hub, "POST", "/api/sets/dataset1/snapshot")
                await self._look()
            await asyncio.sleep(self._every * (0.5 + self._world.chance.random()))

    async def _look(self) -> None:
        found = await resources(self._hub)
        self.lists += 1
        self._world.note("poller", f"reads {len(found.locs)} resources at {found.at}")
        acknowledged = self._source.acknowledged.items()
        changes = [(loc, to) for key, (_, to) in acknowledged for loc in self._source.locs[key]]
        self.faults += [f"at {found.at}: {fault}" for fault in found.faults(changes)]


class Resources(NamedTuple):
    """A Resource List."""

    at: str
    locs: list[str]

    def faults(self, changes: Iterable[tuple[str, str]]) -> list[str]:
        """Of these resources, those that changed up to its time are there, each once."""
        missing = {loc for loc, when in changes if when <= self.at} - set(self.locs)
        twice = len(self.locs) - len(set(self.locs))
        return [
            *([f"the Resource List lacks {sorted(missing)[:5]}"] if missing else ()),
            *([f"the Resource List has {twice} twice"] if twice else ()),
        ]


async def resources(hub: str, set_name: str = "dataset1") -> Resources:
    """What the newest Resource List of a hub holds."""
    answer = await ask(hub, "GET", f"/{set_name}/resourcelist.xml")
    if answer.status != 200:
        raise Unreachable(f"status {answer.status}")
    at = AT.search(answer.body)
    return Resources(at[1].decode() if at else "", [e.decode() for e in ENTRY.findall(answer.body)])


class Receiver(asyncio.Protocol):
    """A WebSub callback on a host of its own: verifies, and remembers what it was sent."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.wants = ""  # only changes of resources whose names begin so
        self.locs: list[str] = []
        self.refuses = 0  # so many of the next deliveries
        self.late = 0.0  # seconds until it answers
        self.hangs = False  # it answers no delivery at all
        self.verified = 0  # how often it was asked whether it wants a subscription

    def listen(self) -> None:
        context = self.world.host(self.name).context()
        context.run(self.world.network.listen, lambda: _Call(self), 80)

    async def subscribe(
        self, hub: str, lease: int = 864_000, set_name: str = "dataset1", mode: str = "subscribe"
    ) -> int:
        topic = f"http://{hub}:{HUB_PORT}/channels/{set_name}/change_notification_channel"
        if self.wants:
            topic += f"?prefix=http://example.com/{self.wants}"
        form = (
            f"hub.mode={mode}&hub.topic={quote(topic)}&hub.callback=http://{self.name}/"
            f"&hub.lease_seconds={lease}"
        )
        answer = await ask(
            hub,
            "POST",
            "/hub",
            form.encode(),
            Content_Type="application/x-www-form-urlencoded",
        )
        self.world.note(self.name, f"{mode}s at {hub}: {answer.status} {answer.body[:80]!r}")
        return answer.status


class _Call(asyncio.Protocol):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._data = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if found and len(body) >= int(length[1] if length else 0):
            self._data = b""
            answer = self._answer(head, body)
            if answer is None:
                return
            asyncio.get_running_loop().call_later(
                self._receiver.late, self._transport.write, answer
            )

    def _answer(self, head: bytes, body: bytes) -> bytes | None:
        receiver = self._receiver
        if challenge := re.search(rb"hub\.challenge=([^& ]+)", head):
            receiver.world.note(receiver.name, "verifies")
            receiver.verified += 1
            length = len(challenge[1])
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (length, challenge[1])
        if receiver.hangs:
            receiver.world.note(receiver.name, "does not answer")
            return None
        if receiver.refuses:
            receiver.refuses -= 1
            receiver.world.note(receiver.name, "refuses")
            return b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
        locs = [each.decode() for each in ENTRY.findall(body)]
        receiver.locs += locs
        receiver.world.note(receiver.name, f"is called with {locs}")
        return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
