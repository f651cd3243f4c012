"""Channels as server-sent events, for browsers and for whoever has only HTTP.

Rules that hold here: the id of an event is the cursor, so a browser that comes back by itself
resumes, and a stream begins with the id of where it begins, for a browser that has had no event
yet; what a WebSocket is told by a close code, a stream is told by its HTTP status.
"""

import random

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rsnotify.delivery.channels.admission import Channels
from rsnotify.delivery.channels.sse_reader import SseReader, body_message
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import BEGINS, ChannelName

RETRY_MILLISECONDS = (1_000, 5_000)  # spread out, or all come back together


def wants_stream(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    types = (part.partition(";")[0].strip().lower() for part in accepted.split(","))
    return "text/event-stream" in types


class Sse:
    """The event stream of every channel."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    async def stream(self, request: Request) -> Response:
        name, token = await self._channels.admit(request)
        after = request.headers.get("last-event-id") or request.query_params.get("from")
        cursor = await self._channels.servable_cursor(name, after)
        origin = request.headers.get("origin")
        return EventStream(self._channels, name, cursor, token, origin)


class EventStream(Response):
    """An answer that goes on until either side ends it."""

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
    """Where the stream begins: an event without data sets the last event id and tells nothing."""
    return f"id: {cursor}\nretry: {retry_milliseconds}\n\n".encode()


def _headers(cursor: Position, origin: str | None) -> dict[str, str]:
    """The origin was admitted before; a proxy must neither keep the stream nor wait for its end."""
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        BEGINS.lower(): str(cursor),
    }
    if origin is not None:
        headers |= {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": BEGINS,
            "vary": "origin",
        }
    return headers
