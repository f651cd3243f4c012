"""Makes streams of sets, for a conformance suite that makes its streams by PUT and fills them by
POST: each stream is a set, and each message a change. Whatever is read goes to the hub, as it is
asked; only the messages of the answer are put back in place of the changes.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import NamedTuple

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.running import RunningHub
from tests.support.stream_server import WebServer, one_answer

HOP_BY_HOP = {"connection", "content-length", "content-encoding", "date", "transfer-encoding"}
LINE_BREAKS = re.compile(rb"\r\n|\r|\n")


class MadeStream(NamedTuple):
    """A stream, as it was made."""

    set_name: str
    content_type: str

    @property
    def is_json(self) -> bool:
        return self.content_type.partition(";")[0].strip().lower() == "application/json"

    def messages_of(self, body: bytes) -> list[bytes]:
        """An array is flattened by one level, as the protocol has it."""
        if not self.is_json:
            return [body] if body else []
        decoded = json.loads(body) if body else []
        return [json.dumps(each).encode() for each in _listed(decoded)]

    def joined(self, messages: Sequence[bytes]) -> bytes:
        return b"[%s]" % b",".join(messages) if self.is_json else b"".join(messages)


def _listed(decoded: object) -> list[object]:
    return decoded if isinstance(decoded, list) else [decoded]


NO_STREAM = MadeStream("no-such-set", "application/json")
PASSED = (
    *("If-None-Match", "Origin"),
    *("Access-Control-Request-Method", "Access-Control-Request-Headers"),
)


class StreamAdapter:
    """The suite's server, before a hub."""

    def __init__(self, hub: RunningHub) -> None:
        self._hub = hub
        self._numbers = count()
        self._streams: dict[str, MadeStream] = {}
        self._messages: dict[str, bytes] = {}  # by the address of their change
        self._publishing = asyncio.Lock()  # a writer that waits for each answer, as the suite means

    async def answer(self, request: web.Request) -> web.StreamResponse:
        made = self._streams.get(request.path)
        if request.method == "PUT":
            return await self._make(request, made)
        if request.method == "POST":
            return await self._append(request, made)
        if request.method == "DELETE":
            if made is None:
                return web.Response(status=404)
            del self._streams[request.path]
            await self._hub.ask("DELETE", f"/api/sets/{made.set_name}")
            return web.Response(status=204)
        return await self._read(request, made or NO_STREAM)

    async def _make(self, request: web.Request, made: MadeStream | None) -> web.Response:
        content_type = request.headers.get("Content-Type", "application/octet-stream")
        if made is not None:
            return web.Response(status=200 if made.content_type == content_type else 409)
        made = MadeStream(f"s{next(self._numbers)}", content_type)
        await self._hub.ask("PUT", f"/api/sets/{made.set_name}")
        self._streams[request.path] = made
        messages = made.messages_of(await request.read())
        offset = await self._publish(made, messages) if messages else await self._tail(made)
        headers = {"Stream-Next-Offset": offset, "Location": str(request.url)}
        return web.Response(status=201, headers=headers | {"Content-Type": content_type})

    async def _append(self, request: web.Request, made: MadeStream | None) -> web.Response:
        if made is None:
            return web.Response(status=404)
        body = await request.read()
        try:
            messages = made.messages_of(body)
        except ValueError:
            messages = []
        if not messages or "Content-Type" not in request.headers:
            return web.Response(status=400)
        if request.headers["Content-Type"].lower() != made.content_type.lower():
            return web.Response(status=409)
        offset = await self._publish(made, messages)
        return web.Response(status=204, headers={"Stream-Next-Offset": offset})

    async def _publish(self, made: MadeStream, messages: Sequence[bytes]) -> str:
        locs = [f"http://message.example/{next(self._numbers)}" for _ in messages]
        self._messages |= dict(zip(locs, messages, strict=True))
        async with self._publishing:
            return str((await self._hub.publish(*locs, set_name=made.set_name))["until"])

    async def _tail(self, made: MadeStream) -> str:
        url = f"{self._hub.url}/streams/{made.set_name}"
        async with aiohttp.ClientSession() as session, session.head(url) as answer:
            return answer.headers["Stream-Next-Offset"]

    async def _read(self, request: web.Request, made: MadeStream) -> web.StreamResponse:
        query = request.raw_path.partition("?")[2]
        url = URL(f"{self._hub.url}/streams/{made.set_name}?{query}", encoded=True)
        sent = {name: request.headers[name] for name in PASSED if name in request.headers}
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url, headers=sent) as answer,
        ):
            headers = {
                name: value
                for name, value in answer.headers.items()
                if name.lower() not in HOP_BY_HOP
            }
            if answer.content_type == "text/event-stream":
                return await self._relay(request, made, answer, headers)
            body = await answer.read()
            if answer.status == 200 and request.method in ("GET", "HEAD"):
                headers["Content-Type"] = made.content_type
                body = self._restored(made, body) if body else body
            return web.Response(status=answer.status, headers=headers, body=body)

    def _restored(self, made: MadeStream, body: bytes) -> bytes:
        return made.joined([self._messages[each["loc"]] for each in json.loads(body)])

    async def _relay(
        self,
        request: web.Request,
        made: MadeStream,
        answer: aiohttp.ClientResponse,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        relayed = web.StreamResponse(status=answer.status, headers=headers)
        with suppress(ConnectionError):  # the suite leaves when it has seen enough
            await self._relay_events(request, made, answer, relayed)
        return relayed

    async def _relay_events(
        self,
        request: web.Request,
        made: MadeStream,
        answer: aiohttp.ClientResponse,
        relayed: web.StreamResponse,
    ) -> None:
        """A data event goes with the control event behind it, as the hub has sent both: the suite
        leaves as soon as it has read what looks like one, which data may do."""
        await relayed.prepare(request)
        data = b""
        lines: list[bytes] = []
        async for line in answer.content:
            if line != b"\n":
                lines.append(line)
                continue
            is_data = lines[:1] == [b"event: data\n"]
            if is_data:
                body = b"".join(each.removeprefix(b"data:") for each in lines[1:])
                parts = LINE_BREAKS.split(self._restored(made, body))
                lines = [lines[0], *(b"data:%s\n" % part for part in parts)]
            event = data + b"".join([*lines, b"\n"])
            if not is_data:
                await relayed.write(event)
            data, lines = event if is_data else b"", []
        await relayed.write_eof(data)


@asynccontextmanager
async def adapted(hub: RunningHub) -> AsyncIterator[str]:
    """The address of the suite's server."""
    app = one_answer(StreamAdapter(hub).answer, body_bytes=64 * 1024**2)
    async with WebServer(app) as server:
        yield server.url
