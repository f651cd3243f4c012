"""Follow a Source change by change, and keep the place of what was dealt with.

>>> async for change in follow("https://example.org/", cursor="cursor"):
...     async with change:  # dealt with when this block ends; then the cursor moves
...         print(change.change, change.loc)

Rules that hold here: the cursor is stored after the caller has dealt with a change, so a crash
repeats and never skips.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, RLock, Thread
from types import TracebackType
from typing import Literal, Self, TypeVar, cast

from rsnotify.resourcesync.change import Change, Position
from rsnotify_client.changelists import POLL_SECONDS
from rsnotify_client.cursor import Cursor, CursorStore, Ledger, SqliteCursor, store_of
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.follower import Follower, SetsFollower
from rsnotify_client.notification import Received, channel_url

Piece = TypeVar("Piece")

WAITING_PIECES = 4  # at most are read before they are asked for, in a thread


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

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        if exc_type is None:
            self.done()
        return False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        return self.__exit__(exc_type, exc, traceback)


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
        if not received.changes:  # its end counts once all before it is dealt with
            with self._lock:
                number = self._ledger.expect(received.until, is_last=True)
            self.done(number)
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
    return after if isinstance(after, Position) else _parsed(after)


def _parsed(text: str) -> Position:
    try:
        return Position.parse(text)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None


Cursors = str | Path | Mapping[str, Cursor]
"""The path of one SQLite file for all sets, or a cursor for each set."""


async def handed_on(
    follower: AsyncIterable[Piece], changes: Callable[[Piece], list[FollowedChange]]
) -> AsyncGenerator[FollowedChange, None]:
    """The changes one by one, read in a task of its own, so that the loop may be left anywhere.

    A loop that is left leaves its generator to the event loop. At its end that closes all
    generators at the same time, which fails where one holds another; a task it cancels first.
    """
    asked = asyncio.Semaphore(0)
    found: asyncio.Queue[Piece | None] = asyncio.Queue()

    async def read() -> None:
        async with aclosing(cast("AsyncGenerator[Piece]", aiter(follower))) as pieces:
            await asked.acquire()
            async for piece in pieces:
                found.put_nowait(piece)
                await asked.acquire()

    task = asyncio.create_task(read())
    task.add_done_callback(lambda _: found.put_nowait(None))
    try:
        while True:
            asked.release()
            if (piece := await found.get()) is None:
                task.result()  # raises what ended it, be it that others cancelled it
                return
            for change in changes(piece):
                yield change
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _handed_on_sync(
    follower: AsyncIterable[Piece], changes: Callable[[Piece], list[FollowedChange]]
) -> Iterator[FollowedChange]:
    """The same, read by an event loop in a thread of its own."""
    found: SimpleQueue[Piece | None] = SimpleQueue()
    room = asyncio.Semaphore(WAITING_PIECES)
    loop = asyncio.new_event_loop()

    async def read() -> None:
        async with aclosing(cast("AsyncGenerator[Piece]", aiter(follower))) as pieces:
            async for piece in pieces:
                await room.acquire()
                found.put(piece)

    task = loop.create_task(read())

    def run() -> None:
        try:
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            found.put(None)

    def call(what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(what)

    thread = Thread(target=run, name="rsnotify-follow", daemon=True)
    thread.start()
    try:
        while (piece := found.get()) is not None:
            call(room.release)
            yield from changes(piece)
        task.result()  # raises what ended it
    finally:
        call(task.cancel)
        thread.join()


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
    return handed_on(*_one(url, cursor, after, token, poll_seconds))


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
    return handed_on(*_several(url, sets, cursor, after, token))


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
