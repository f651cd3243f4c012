"""Channels as server-sent events, for browsers and plain HTTP clients.

The id of an event is the cursor, so a browser that reconnects resumes by itself. A stream starts
with an id without data, for a browser that is cut off before the first event. Errors that a
WebSocket gets as a close code are HTTP statuses here.
"""

import random

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rsnotify.core.query import parse_moment
from rsnotify.delivery.channels.admission import Channels, requested_start
from rsnotify.delivery.channels.sse_reader import SseReader, body_message
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import FROM_HEADER, ChannelName

RETRY_MILLISECONDS = (1_000, 5_000)  # random, or all browsers reconnect at once


def wants_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    types = (part.partition(";")[0].strip().lower() for part in accepted.split(","))
    return "text/event-stream" in types


class Sse:
    """Opens event streams."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def stream(self, request: Request) -> Response:
        name, token = await self._channels.admit(request)
        after = requested_start(request)
        last = request.headers.get("last-event-id")
        if last:
            after = parse_moment(last, "Last-Event-ID")
        cursor = await self._channels.servable_cursor(name, after)
        origin = request.headers.get("origin")
        return EventStream(self._channels, name, cursor, token, origin)


class EventStream(Response):
    """A response that goes on until either side ends it.

    `Response.__init__` is not called: it would set a length.
    """

    def __init__(
        self,
        channels: Channels,
        name: ChannelName,
        cursor: Position,
        token: str,
        origin: str | None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._channels = channels
        self._name = name
        self._cursor = cursor
        self._token = token
        self.init_headers(_headers(cursor, origin))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        reader = SseReader()
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await send(body_message(_opening(self._cursor, random.randint(*RETRY_MILLISECONDS))))  # noqa: S311
        self._channels.join(reader, self._name, self._cursor, self._token)
        await reader.run(send, receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _opening(cursor: Position, retry_milliseconds: int) -> bytes:
    """An event without data: it sets the last event id, and no event handler is called."""
    return f"id: {cursor}\nretry: {retry_milliseconds}\n\n".encode()


def _headers(cursor: Position, origin: str | None) -> dict[str, str]:
    """The origin was checked before. Proxies must neither cache nor buffer the stream."""
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        FROM_HEADER.lower(): str(cursor),
    }
    if origin is not None:
        headers |= {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": FROM_HEADER,
            "vary": "origin",
        }
    return headers
