"""One channel's readers over WebSocket: each a cursor over the hub.

Rules that hold here: a reader starts at its cursor, catches up, and goes on at the head by the same
loop, so there is no seam between history and live.
Nothing here knows how a notification is made.
"""

import asyncio
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from rsnotify.core.change import Position
from rsnotify.core.notification import KINDS, ChannelName, Notification
from rsnotify.errors import Rejected, TryAgain, no_such_set
from rsnotify.hub import Feed, Hub

REASON_BYTES = 123  # what a close frame can carry


class Channels:
    """The WebSocket endpoint of every channel."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def websocket(self, websocket: WebSocket) -> None:
        """Refuse with an HTTP answer, or accept and follow until either side ends it."""
        feed = self._hub.feed(channel_name(websocket))
        await websocket.accept()
        try:
            cursor = read_cursor(websocket.query_params.get("from"), feed.tail.head)
            await self._follow(websocket, feed, cursor)
        except (Rejected, TryAgain) as error:
            await websocket.close(error.close_code, close_reason(error.detail))
        except WebSocketDisconnect:
            pass

    async def _follow(self, websocket: WebSocket, feed: Feed, cursor: Position) -> None:
        waiting = _Waiting()
        feed.watchers.add(waiting)
        try:
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(self._send(websocket, feed, cursor, waiting))
                await _until_closed(websocket)
                sender.cancel()
        except* (Rejected, TryAgain) as errors:
            raise errors.exceptions[0] from None
        finally:
            feed.watchers.discard(waiting)

    async def _send(
        self, websocket: WebSocket, feed: Feed, cursor: Position, waiting: "_Waiting"
    ) -> None:
        while not waiting.ended:
            waiting.news.clear()
            notification = await self._hub.after(feed, cursor)
            if notification is None:
                await waiting.news.wait()
                continue
            await websocket.send_text(notification.payload.decode())
            cursor = notification.until
        raise no_such_set(feed.channel.set_name)


class _Waiting:
    """A reader at the head, until there is news."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.ended = False

    def push(self, notification: Notification) -> None:  # noqa: ARG002
        self.news.set()

    def end(self) -> None:
        self.ended = True
        self.news.set()


async def _until_closed(websocket: WebSocket) -> None:
    with suppress(WebSocketDisconnect):
        while True:
            await websocket.receive_text()


def channel_name(websocket: WebSocket) -> ChannelName:
    set_name, kind = websocket.path_params["set"], websocket.path_params["kind"]
    if kind not in KINDS:
        raise Rejected(f"there is no {kind} channel", status=404, close_code=4404)
    return ChannelName(set_name, kind)


def read_cursor(text: str | None, head: Position) -> Position:
    """Where the reader stands: at the head, or after the position it names."""
    if text is None:
        return head
    try:
        return min(Position.parse(text), head)
    except (ValueError, OverflowError) as error:
        raise Rejected(f"malformed `from`: {error}", close_code=4400) from None


def close_reason(detail: str) -> str:
    return detail.encode()[:REASON_BYTES].decode(errors="ignore")
