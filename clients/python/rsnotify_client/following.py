"""Follow a Source change by change, and keep the place of what was dealt with.

>>> async for change in follow("https://example.org/", cursor="cursor"):
...     async with change:  # dealt with when this block ends; then the cursor moves
...         print(change.change, change.loc)

Rules that hold here: the cursor is stored after the caller has dealt with a change, so a crash
repeats and never skips.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from threading import Lock, RLock
from typing import Generic, Literal, Self, TypeVar, cast

from rsnotify.resourcesync.change import Change, Position
from rsnotify_client.changelists import POLL_SECONDS
from rsnotify_client.cursor import Cursor, CursorStore, Ledger, SqliteCursor, store_of
from rsnotify_client.follower import Follower, SetsFollower
from rsnotify_client.notification import Received, channel_url

Piece = TypeVar("Piece")


class FollowedChange(Change, frozen=True, dict=True):
    """A change that was followed: deal with it in `with` or `async with`, or call `done`."""

    @property
    def set_name(self) -> str | None:
        """Its set, where several are followed."""
        name: str | None = self.__dict__.get("_set_name")
        return name

    def done(self) -> None:
        """The caller has dealt with it; a crash before this repeats it, never skips it."""
        keeper: Keeper | None = self.__dict__.get("_keeper")
        if keeper is not None:
            keeper.done(self.__dict__["_number"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> Literal[False]:
        if error is None:
            self.done()
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: object, *_: object) -> Literal[False]:
        return self.__exit__(error)


class Keeper:
    """Hands changes out one by one and stores how far they are dealt with, in whatever thread."""

    def __init__(self, store: CursorStore | None, set_name: str | None = None) -> None:
        self._store = store
        self._set_name = set_name
        self._ledger = Ledger()
        self._lock = Lock()  # of the ledger; nothing is stored while it is held
        self._reached: Position | None = None
        self._stored: Position | None = None
        self._storing = RLock()  # so that an older cursor is never stored after a newer one
        self._is_storing = False

    def changes(self, received: Received) -> list[FollowedChange]:
        if not received.changes:
            self._keep_place(received.until)
            return []
        following: list[Position | None] = [*received.positions[1:], None]
        found = zip(received.changes, received.positions, following, strict=True)
        with self._lock:
            return [
                self._one(change, received.until if next_ is None else at, is_last=at != next_)
                for change, at, next_ in found
            ]

    def _one(self, change: Change, cursor: Position, *, is_last: bool) -> FollowedChange:
        followed = FollowedChange(*(getattr(change, name) for name in change.__struct_fields__))
        followed.__dict__["_set_name"] = self._set_name
        if self._store is not None:
            followed.__dict__["_keeper"] = self
            followed.__dict__["_number"] = self._ledger.expect(cursor, is_last=is_last)
        return followed

    def done(self, number: int) -> None:
        with self._lock:
            cursor = self._ledger.done(number)
            if cursor is None:
                return
            self._reached = cursor
        self._store_reached()

    def _keep_place(self, cursor: Position) -> None:
        """Keep the place where there was nothing to deal with."""
        with self._lock:
            if not self._ledger.is_empty:
                return
            self._reached = cursor
        self._store_reached()

    def _store_reached(self) -> None:
        """Store the cursor, again until nothing newer came meanwhile."""
        if self._store is None:
            return
        with self._storing:
            if self._is_storing:  # the store itself dealt with a change
                return
            self._is_storing = True
            try:
                while (cursor := self._reached) is not None and cursor != self._stored:
                    self._store.save(cursor)
                    self._stored = cursor
            finally:
                self._is_storing = False


class ReadingTask(Generic[Piece]):
    """Reads in a task of its own, so that its reader may leave at any point.

    A loop that is left leaves its generator to the event loop. At its end that closes all
    generators at the same time, which fails where one holds another; a task it cancels first.
    """

    def __init__(self, source: AsyncIterable[Piece]) -> None:
        self._source = source
        self._pieces: asyncio.Queue[Piece | BaseException] = asyncio.Queue()
        self._asked = asyncio.Semaphore(0)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        self._task.add_done_callback(self._tell_end)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None  # noqa: S101
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        async with aclosing(cast("AsyncGenerator[Piece]", aiter(self._source))) as pieces:
            await self._asked.acquire()
            async for piece in pieces:
                self._pieces.put_nowait(piece)
                await self._asked.acquire()

    def _tell_end(self, task: asyncio.Task[None]) -> None:
        """Have the reader raise what ended it, even if others cancelled it."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._pieces.put_nowait(error or StopAsyncIteration())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        self._asked.release()
        piece = await self._pieces.get()
        if isinstance(piece, BaseException):
            raise piece
        return piece


def first_cursor(
    store: CursorStore | None, after: Position | str | None, url: str
) -> Position | None:
    """Where to begin to follow this address.

    A store that keeps the address too is for this one from now on; it refuses that if it holds the
    place in another.
    """
    if keep_for := getattr(store, "keep_for", None):
        keep_for(url)
    kept = store.load() if store is not None else None
    if kept is not None or after is None:
        return kept
    return after if isinstance(after, Position) else Position.parse(after)


WAITING_PIECES = 4


class ReadingThread(threading.Thread, Generic[Piece]):
    """Reads in the background; `pieces` has what it read, or why it ended."""

    def __init__(self, follower: AsyncIterable[Piece]) -> None:
        super().__init__(name="rsnotify-follow", daemon=True)
        self.pieces: queue.Queue[Piece | BaseException] = queue.Queue()
        self._follower = follower
        self._room = asyncio.Semaphore(WAITING_PIECES)
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._read())

    def run(self) -> None:
        try:
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
        self._call(self._task.cancel)
        self.join()

    def _call(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(what)


Cursors = str | Path | Mapping[str, Cursor]
"""The path of one SQLite file for all sets, or a cursor for each set."""


async def _handed_on(
    follower: AsyncIterable[Piece], changes: Callable[[Piece], list[FollowedChange]]
) -> AsyncGenerator[FollowedChange, None]:
    async with ReadingTask(follower) as pieces:
        async for piece in pieces:
            for change in changes(piece):
                yield change


def _handed_on_sync(
    follower: AsyncIterable[Piece], changes: Callable[[Piece], list[FollowedChange]]
) -> Iterator[FollowedChange]:
    reading = ReadingThread(follower)
    try:
        for piece in reading.read():
            yield from changes(piece)
    finally:
        reading.end()


def follow(
    url: str,
    *,
    cursor: Cursor | None = None,
    after: Position | str | None = None,
    token: str | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> AsyncGenerator[FollowedChange, None]:
    """The changes of the Source at any address that a person might have.

    `cursor` keeps the place: a path, a store, or two functions. Without one, and on a first start
    without `after`, it begins now.
    """
    return _handed_on(*_one(url, cursor, after, token, poll_seconds))


def follow_sync(
    url: str,
    *,
    cursor: Cursor | None = None,
    after: Position | str | None = None,
    token: str | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> Iterator[FollowedChange]:
    """As `follow`: `with change:` or `change.done()` says that the caller has dealt with it."""
    return _handed_on_sync(*_one(url, cursor, after, token, poll_seconds))


def _one(
    url: str,
    cursor: Cursor | None,
    after: Position | str | None,
    token: str | None,
    poll_seconds: float,
) -> tuple[Follower, Callable[[Received], list[FollowedChange]]]:
    store = store_of(cursor)
    begin = first_cursor(store, after, url)
    follower = Follower(url, cursor=begin, token=token, poll_seconds=poll_seconds)
    return follower, Keeper(store).changes


def follow_sets(
    url: str,
    sets: Sequence[str],
    *,
    cursor: Cursors | None = None,
    after: Position | str | None = None,
    token: str | None = None,
) -> AsyncGenerator[FollowedChange, None]:
    """The changes of these sets of the hub at `url`; `change.set_name` says whose each is.

    `cursor` keeps a place in each set: the path of a SQLite file for all, or a cursor for each.
    Where there is none, and no `after`, it begins now.
    """
    return _handed_on(*_several(url, sets, cursor, after, token))


def follow_sets_sync(
    url: str,
    sets: Sequence[str],
    *,
    cursor: Cursors | None = None,
    after: Position | str | None = None,
    token: str | None = None,
) -> Iterator[FollowedChange]:
    """As `follow_sets`, for programs without an event loop."""
    return _handed_on_sync(*_several(url, sets, cursor, after, token))


def _several(
    url: str,
    sets: Sequence[str],
    cursor: Cursors | None,
    after: Position | str | None,
    token: str | None,
) -> tuple[SetsFollower, Callable[[tuple[str, Received]], list[FollowedChange]]]:
    stores = {name: _store(cursor, name) for name in sets}
    keepers = {name: Keeper(store, name) for name, store in stores.items()}
    cursors = {
        name: first_cursor(store, after, channel_url(url, name)) for name, store in stores.items()
    }
    follower = SetsFollower(url, cursors, token=token)
    return follower, lambda piece: keepers[piece[0]].changes(piece[1])


def _store(cursor: Cursors | None, name: str) -> CursorStore | None:
    if isinstance(cursor, str | Path):
        return SqliteCursor(cursor, name)
    return None if cursor is None else store_of(cursor[name])
