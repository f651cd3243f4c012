"""Who may read a channel, and from which position.

A reader without the right to read gets an HTTP error. A reader that asks for a position which
cannot be served gets a close code. Nothing here writes a notification.
"""

from collections.abc import Awaitable, Callable, Sequence
from time import time
from typing import NamedTuple

from starlette.requests import HTTPConnection

from rsnotify.access.access import Access
from rsnotify.access.cors import origins_that_read
from rsnotify.access.query import check_not_future, render_cursors
from rsnotify.channels.reader_limits import ReaderLimits
from rsnotify.channels.requested_channels import ChannelCursor, requested_form
from rsnotify.errors import Rejected
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.forms import Form
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetRecord


class Admitted(NamedTuple):
    """The sets that a reader may read, as they were when that was decided."""

    sets: Sequence[SetRecord]
    token: str  # the key of the token that it used, empty if none was needed


class ChannelEntry(NamedTuple):
    """Where an admitted reader begins: in one channel, or in several over one connection."""

    places: Sequence[tuple[ChannelName, Position]]
    is_several: bool
    admitted: Admitted
    form: Form
    address: str  # of the peer, to which limits apply
    filter: Filter | None = None  # of the changes that it wants

    @property
    def cursor(self) -> str:
        """Its cursor, as the reader gets it and may send it back."""
        if not self.is_several:
            return str(self.places[0][1])
        return render_cursors((name.set_name, cursor) for name, cursor in self.places)


class Admission:
    """Judges those who ask for channels."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        limits: ReaderLimits,
        allowed_origins: tuple[str, ...] | None,
    ) -> None:
        self._journals = journals
        self._access = access
        self._limits = limits
        self._allowed_origins = allowed_origins

    async def admit(self, connection: HTTPConnection, wanted: Sequence[ChannelCursor]) -> Admitted:
        """Refuse a peer that may not read all of these channels."""
        sets = self._journals.sets
        judged = {each.channel.set_name: sets.get(each.channel.set_name) for each in wanted}
        token = await self._access.require_readers(connection, judged)
        for each in wanted:
            self._journals.feed(each.channel)
        # As they were judged: one that has become private since is found when the reader joins.
        records = [record for record in judged.values() if record is not None]
        is_private = any(record.private for record in records)
        self._check_origin(connection, is_private=is_private)
        address = self._access.client_address(connection)
        self._limits.check(address, [each.channel for each in wanted])
        return Admitted(records, token)

    def _check_origin(self, connection: HTTPConnection, *, is_private: bool) -> None:
        """A page must not read with the rights of its visitor; browsers say its origin."""
        origin = connection.headers.get("origin")
        if origin is None or origin == self._access.own_origin(connection):
            return
        allowed = origins_that_read(self._allowed_origins, is_private=is_private)
        if not {origin, "*"} & {*allowed}:
            raise Rejected(
                "pages of this origin may not read this channel; see RSNOTIFY_ALLOWED_ORIGINS",
                status=403,
            )

    def reads_by_cookie(self, origin: str) -> bool:
        """Whether pages of this other origin may send their visitor's cookie."""
        return origin in self._access.cookie_origins

    async def entry(
        self,
        connection: HTTPConnection,
        wanted: Sequence[ChannelCursor],
        admitted: Admitted,
        find_cursor: Callable[[ChannelName, Position | None], Awaitable[Position]],
        filter_: Filter | None = None,
    ) -> ChannelEntry:
        """Where a reader begins, and the address for which it counts."""
        names, address = [each.channel for each in wanted], self._access.client_address(connection)
        filter_ = await self._journals.known_filter(filter_, names)
        self._limits.check(address, names, filter_)
        return ChannelEntry(
            places=[(name, await find_cursor(name, after)) for name, after in wanted],
            is_several="set" not in connection.path_params,
            admitted=admitted,
            form=requested_form(connection),
            address=address,
            filter=filter_,
        )

    async def cursor(self, name: ChannelName, after: Position | None) -> Position:
        """The position where a reader starts: the head, or the one that it asks for. A position
        before the set was made means that moment, unless another set had this name before."""
        feed = self._journals.feed(name)
        if after is None:
            return feed.note_head_given()
        self._journals.require_of_this_set(feed, after)
        after = max(after, Position.parse(feed.created))
        if after <= feed.tail.head:
            return after
        head = await self._journals.head(name)  # another hub process may know newer changes
        check_not_future(after, head, int(time() * MICROSECONDS))
        return min(after, head)

    async def servable_cursor(self, name: ChannelName, after: Position | None) -> Position:
        """The cursor; raises if the journal no longer has all changes after the position."""
        cursor = await self.cursor(name, after)
        await self._journals.reading.after(self._journals.feed(name), cursor)
        return cursor
