"""Follow a Source change by change, and keep the place of what was dealt with.

>>> for change in follow("https://example.org/", cursor="cursor"):
...     with change:  # dealt with when this block ends; then the cursor moves
...         print(change.change, change.loc)

Rules that hold here: the cursor is stored after the caller has dealt with a change, so a crash
repeats and never skips.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, RLock, Thread
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeVar, cast

from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify_client.changelists import POLL_SECONDS
from rsnotify_client.cursor import Cursor, CursorStore, Ledger, SqliteCursor, store_of
from rsnotify_client.errors import InvalidArgument, checked_url
from rsnotify_client.follower import Follower, SetsFollower
from rsnotify_client.network import Network, NetworkOptions, network_of
from rsnotify_client.notification import (
    TRANSPORTS,
    ChannelTransport,
    Received,
    channel_url,
    position_of,
)
from rsnotify_client.queue import check_name
from rsnotify_client.token import Token
from rsnotify_client.wanted import Values, wanted_of

Piece = TypeVar("Piece")
Part = TypeVar("Part")

WAITING_PIECES = 4  # at most are read before they are asked for, in a thread


class FollowedChange(Change, frozen=True, dict=True):
    """A change that was followed: deal with it in `with` or `async with`, or call `done`."""

    @property
    def set_name(self) -> str | None:
        """Its set, where several are followed."""
        name: str | None = self.__dict__.get("_set_name")
        return name

    @property
    def position(self) -> Position | None:
        """From where to go on once it is dealt with, as `position=`; None while `state` is read."""
        found: Position | None = self.__dict__.get("_position")
        return found

    @property
    def is_state(self) -> bool:
        """Whether it is no change, but a resource as it was when `state` was read."""
        return "_is_state" in self.__dict__

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
        if received.is_state:  # no place is kept before all of it is dealt with
            with self._lock:
                return [self._resource(each) for each in received.changes]
        following: list[Position | None] = [*received.positions[1:], None]
        found = zip(received.changes, received.positions, following, strict=True)
        reached, changes = received.from_, []
        with self._lock:
            for change, at, next_ in found:
                cursor = received.until if next_ is None else at
                followed = self._one(change, cursor, is_last=at != next_)
                reached = cursor if at != next_ else reached
                followed.__dict__["_position"] = reached
                changes.append(followed)
        return changes

    def _one(self, change: Change, cursor: Position, *, is_last: bool) -> FollowedChange:
        followed = FollowedChange(*(getattr(change, name) for name in change.__struct_fields__))
        followed.__dict__["_set_name"] = self._set_name
        if self._store is not None:
            followed.__dict__["_keeper"] = self
            followed.__dict__["_number"] = self._ledger.expect(cursor, is_last=is_last)
        return followed

    def _resource(self, change: Change) -> FollowedChange:
        followed = self._one(change, Position(0), is_last=False)
        followed.__dict__["_is_state"] = True
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


Begin = Position | str | datetime | None
"""Where to begin: a position, or a time, which has its zone; None is now."""

SUCH = "give a datetime such as 2026-11-20T21:34:00.123456Z, with its zone"

Cursors = Cursor | Mapping[str, Cursor]
"""A cursor, or one for each of several sets."""


def first_position(store: CursorStore | None, position: Begin, url: str) -> Position | None:
    """Where to begin to follow this address.

    A store that keeps the address too is for this one from now on; it refuses that if it holds the
    place in another.
    """
    if keep_for := getattr(store, "keep_for", None):
        keep_for(url)
    begin = read_position(position)
    kept = store.load() if store is not None else None
    return begin if kept is None else kept


def read_position(given: Begin) -> Position | None:
    """The position that a caller gave, as text perhaps; a day begins at midnight UTC."""
    if given is None or isinstance(given, Position):
        return given
    if isinstance(given, datetime):
        given = given.isoformat()
    if not isinstance(given, str):
        raise InvalidArgument(f"the position is of type {type(given).__name__}: {SUCH}")
    if (found := position_of(given)) is None:
        raise InvalidArgument(f"the position is {given!r}: {SUCH}")
    return found


async def handed_on(
    follower: AsyncIterable[Piece], parts: Callable[[Piece], list[Part]]
) -> AsyncGenerator[Part, None]:
    """The parts of each piece one by one, read in a task of its own; the loop may be left anywhere.

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
            for part in parts(piece):
                yield part
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _blocking(
    follower: AsyncIterable[Piece], parts: Callable[[Piece], list[Part]]
) -> Iterator[Part]:
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
            yield from parts(piece)
        task.result()  # raises what ended it
    finally:
        call(task.cancel)
        thread.join()


class FollowOptions(NamedTuple):
    """How a Source is followed, whatever is followed of it."""

    token: Token | None
    poll_seconds: float
    network: Network
    transport: ChannelTransport | None
    wanted: Filter | None


def _options(
    token: Token | None,
    poll_seconds: float,
    network: NetworkOptions | None,
    transport: ChannelTransport | None,
    wanted: Filter | None,
) -> FollowOptions:
    chosen = checked_transport(transport)
    return FollowOptions(token, poll_seconds, network_of(network), chosen, wanted)


def checked_transport(given: ChannelTransport | None) -> ChannelTransport | None:
    if given is None or given in TRANSPORTS:
        return given
    raise InvalidArgument(f"the transport is {given!r}: it must be one of {', '.join(TRANSPORTS)}")


def follow(
    url: str,
    sets: Sequence[str] | None = None,
    *,
    cursor: Cursors | None = None,
    position: Begin = None,
    state: bool = False,
    token: Token | None = None,
    poll_seconds: float = POLL_SECONDS,
    network: NetworkOptions | None = None,
    transport: ChannelTransport | None = None,
    prefix: Values = None,
    type: Values = None,  # noqa: A002 - as a hub calls it
    change: Values = None,
    collection: Values = None,
) -> Iterator[FollowedChange]:
    """The changes of a Source, each as it happens; `with change:` says that it is dealt with.

    `url` is any address of any Source that a person might have. With `sets` it is that of a hub,
    and the changes are those of these sets; `change.set_name` says whose each is.

    `cursor` keeps the place: a path, a store, or two functions; of several sets, the path of one
    SQLite file, or a cursor for each. Without one, and on a first start without `position`, it
    begins now. Where a Source has no channel, its Change Lists are read each `poll_seconds`.

    With `state=True`, and as long as no place is kept, all resources as they are come first, each
    as "created" with `change.is_state`, and then every change since. The place is kept once all of
    them are dealt with.

    `transport` is how a channel is read: "websocket", "sse" (an event stream) or "long-poll";
    without it, by the first of them that passes.

    `prefix`, `type`, `change` and `collection` name what is wanted, each one value or several: a
    hub sends no more than that.
    """
    wanted = wanted_of(prefix, type, change, collection)
    options = _options(token, poll_seconds, network, transport, wanted)
    return _blocking(*_followed(url, sets, cursor, position, options, state=state))


def follow_async(
    url: str,
    sets: Sequence[str] | None = None,
    *,
    cursor: Cursors | None = None,
    position: Begin = None,
    state: bool = False,
    token: Token | None = None,
    poll_seconds: float = POLL_SECONDS,
    network: NetworkOptions | None = None,
    transport: ChannelTransport | None = None,
    prefix: Values = None,
    type: Values = None,  # noqa: A002 - as a hub calls it
    change: Values = None,
    collection: Values = None,
) -> AsyncGenerator[FollowedChange, None]:
    """As `follow`, in an event loop: `async for`, and `async with change:`."""
    wanted = wanted_of(prefix, type, change, collection)
    options = _options(token, poll_seconds, network, transport, wanted)
    return handed_on(*_followed(url, sets, cursor, position, options, state=state))


def notifications(
    url: str,
    *,
    position: Begin = None,
    token: Token | None = None,
    poll_seconds: float = POLL_SECONDS,
    network: NetworkOptions | None = None,
    transport: ChannelTransport | None = None,
    prefix: Values = None,
    type: Values = None,  # noqa: A002 - as a hub calls it
    change: Values = None,
    collection: Values = None,
) -> Iterator[Received]:
    """As `follow`, notification by notification.

    The `until` of the last is the `position` to go on from. One without changes says where it is.
    """
    begin = read_position(position)
    wanted = wanted_of(prefix, type, change, collection)
    options = _options(token, poll_seconds, network, transport, wanted)
    follower = Follower(checked_url(url), cursor=begin, **options._asdict())
    return _blocking(follower, _whole)


def notifications_async(
    url: str,
    *,
    position: Begin = None,
    token: Token | None = None,
    poll_seconds: float = POLL_SECONDS,
    network: NetworkOptions | None = None,
    transport: ChannelTransport | None = None,
    prefix: Values = None,
    type: Values = None,  # noqa: A002 - as a hub calls it
    change: Values = None,
    collection: Values = None,
) -> AsyncGenerator[Received, None]:
    """As `notifications`, in an event loop."""
    begin = read_position(position)
    wanted = wanted_of(prefix, type, change, collection)
    options = _options(token, poll_seconds, network, transport, wanted)
    follower = Follower(checked_url(url), cursor=begin, **options._asdict())
    return handed_on(follower, _whole)


def _whole(received: Received) -> list[Received]:
    return [received]


def _followed(
    url: str,
    sets: Sequence[str] | None,
    cursor: Cursors | None,
    position: Begin,
    options: FollowOptions,
    *,
    state: bool = False,
) -> tuple[AsyncIterable[Any], Callable[[Any], list[FollowedChange]]]:
    """What is read, and the changes of each piece of it."""
    checked_url(url)
    if state and (sets is not None or position is not None):
        raise InvalidArgument("state goes with one set, and without a position: leave it out")
    if sets is not None:
        return _several(url, sets, cursor, position, options)
    if isinstance(cursor, Mapping):
        raise InvalidArgument("a cursor for each set is given without sets: name them, too")
    store = store_of(cursor)
    begin = first_position(store, position, url)
    return Follower(url, cursor=begin, state=state, **options._asdict()), Keeper(store).changes


def _several(
    url: str,
    sets: Sequence[str],
    cursor: Cursors | None,
    position: Begin,
    options: FollowOptions,
) -> tuple[SetsFollower, Callable[[tuple[str, Received]], list[FollowedChange]]]:
    if isinstance(sets, str | bytes) or not isinstance(sets, Iterable) or not sets:
        raise InvalidArgument(  # what was given is not shown: it may be a token
            'what stands after the url is a list of names of sets: write sets=["dataset1"], for '
            "one set, too; a token is given as token=…"
        )
    for name in sets:
        check_name(name)
    stores = {name: _store(cursor, name) for name in sets}
    keepers = {name: Keeper(store, name) for name, store in stores.items()}
    begins = {
        name: first_position(store, position, channel_url(url, name))
        for name, store in stores.items()
    }
    follower = SetsFollower(
        url,
        begins,
        token=options.token,
        network=options.network,
        transport=options.transport,
        wanted=options.wanted,
    )
    return follower, lambda piece: keepers[piece[0]].changes(piece[1])


def _store(cursor: Cursors | None, name: str) -> CursorStore | None:
    if isinstance(cursor, str | Path):
        return SqliteCursor(cursor, name)
    if cursor is None:
        return None
    if not isinstance(cursor, Mapping) or name not in cursor:
        raise InvalidArgument(f"there is no cursor for {name!r}: give one for each set, or a path")
    return store_of(cursor[name])
