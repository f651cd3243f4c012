"""The same as `follow` for programs without an event loop: `for change in follow_sync(url): …`.

Rules that hold here: the connection lives in a thread of its own, so that it stays alive however
long the caller takes for a change; not more than a few pieces wait there.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import aclosing
from typing import Generic, TypeVar, cast

from rsnotify.resourcesync.change import Position
from rsnotify_client.changelists import POLL_SECONDS
from rsnotify_client.cursor import Cursor, store_of
from rsnotify_client.follower import Follower
from rsnotify_client.following import FollowedChange, Keeper, first_cursor

WAITING_PIECES = 4

Piece = TypeVar("Piece")


class ReadingThread(threading.Thread, Generic[Piece]):
    """Reads in the background; what it read, or why it ended, is in `pieces`."""

    def __init__(self, follower: AsyncIterable[Piece]) -> None:
        super().__init__(name="rsnotify-follow", daemon=True)
        self.pieces: queue.Queue[Piece | BaseException] = queue.Queue()
        self._follower = follower
        self._room = asyncio.Semaphore(WAITING_PIECES)
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._is_over = threading.Event()

    def run(self) -> None:
        try:
            self._task = self._loop.create_task(self._read())
            if not self._is_over.is_set():
                self._loop.run_until_complete(self._task)
        except BaseException as error:  # the caller's thread raises it
            self.pieces.put(error)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _read(self) -> None:
        async with aclosing(cast("AsyncGenerator[Piece]", aiter(self._follower))) as pieces:
            async for received in pieces:
                await self._room.acquire()
                self.pieces.put(received)

    def read(self) -> Iterator[Piece]:
        """Start, and hand on what is read; what ends it is raised."""
        self.start()
        while True:
            piece = self.pieces.get()
            if isinstance(piece, BaseException):
                raise piece
            self._call(self._room.release)
            yield piece

    def end(self) -> None:
        self._is_over.set()
        if self._task is not None:
            self._call(self._task.cancel)
        self.join()

    def _call(self, what: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what)  # type: ignore[arg-type]
        except RuntimeError:  # it has ended by itself
            return


def follow_sync(
    url: str,
    *,
    cursor: Cursor | None = None,
    after: Position | str | None = None,
    token: str | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[FollowedChange]:
    """As `follow`: `with change:` or `change.done()` says that the caller has dealt with it."""
    store = store_of(cursor)
    keeper = Keeper(store)
    begin = first_cursor(store, after, url)
    reading = ReadingThread(Follower(url, cursor=begin, token=token, poll_seconds=poll_seconds))
    try:
        for received in reading.read():
            yield from keeper.changes(received)
    finally:
        reading.end()
