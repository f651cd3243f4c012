"""A connection that reads several channels: a member of each, with a cursor in each.

Rules that hold here: if nobody is in line, a notification is written at once. Otherwise its member
stands in line for the socket, once, and each gets a turn; so a busy channel holds up no other.
Nothing is queued but members: a slow reader costs its cursors.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from rsnotify.access.query import render_cursors
from rsnotify.channels.channel import YIELD_BYTES, Sent, close_for_a_bug, read_next, write_turn
from rsnotify.channels.frames import WireFormat
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader import Reader
from rsnotify.errors import BecamePrivate, NoSuchSet
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.live.reading import PASSED_CHANGES, PASSED_SECONDS
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import Notification, begun_at, render_nothing


class Member:
    """One channel of a connection: a watcher of its feed, with a cursor of its own."""

    __slots__ = ("_several", "cursor", "feed")

    writes = 1

    def __init__(self, several: "SeveralChannels", feed: Feed, cursor: Position) -> None:
        self._several = several
        self.feed = feed
        self.cursor = cursor

    def __repr__(self) -> str:
        return f"<Member of {self.feed.channel} at {self.cursor}>"

    @property
    def reached(self) -> Position:
        """Up to where it has everything."""
        return self.cursor

    # --- called by the feed --------------------------------------------------------------------

    def push(self, notification: Notification) -> None:
        self._several.push_to(self, notification)

    def fall_behind(self, head: Position) -> None:  # noqa: ARG002
        """It has a cursor of its own."""
        self._several.line_up(self)

    def turn_private(self) -> None:
        private = BecamePrivate(self.feed.channel.set_name)
        self.close(private.close_code, private.detail)

    def end(self) -> None:
        gone = NoSuchSet(self.feed.channel.set_name)
        self.close(gone.close_code, gone.detail)

    # --- as a turn needs it --------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return not self._several.is_writable

    @property
    def wire_format(self) -> WireFormat:
        return self._several.reader.wire_format

    def write(self, data: bytes, /) -> None:
        self._several.write(data)

    def close(self, code: int, reason: str) -> None:
        self._several.reader.close(code, reason)


class FilteredMember(Member):
    """One channel of a connection that wants a part of each. Its cursor is where the peer was told
    to be; what it has reached may be later, and then nothing between was for it."""

    __slots__ = ("_reached", "passed")

    def __init__(self, several: "SeveralChannels", feed: Feed, cursor: Position) -> None:
        super().__init__(several, feed, cursor)
        self._reached = cursor
        self.passed = 0  # changes, since it was told

    @property
    def reached(self) -> Position:
        return max(self.cursor, self._reached)

    def reach(self, notification: Notification) -> None:
        """This is for the peer, or is passed over."""
        if self.cursor >= self._reached:
            self.passed = 0
        self._reached = notification.until
        self.passed += notification.count


class SeveralChannels:
    """The members of one connection, which the reader takes for its channel."""

    def __init__(
        self,
        journals: Journals,
        keepalive: Keepalive,
        reader: Reader,
        on_leave: Callable[["SeveralChannels"], None],
        sent: Sent | None = None,
        filter_: Filter | None = None,
    ) -> None:
        self.pushed = 0
        self.reader = reader
        self.filter = filter_
        self._journals = journals
        self._keepalive = keepalive
        self._on_leave = on_leave
        self._sent = Sent() if sent is None else sent
        self._members: list[Member] = []
        self._in_line: OrderedDict[Member, None] = OrderedDict()
        self._serving: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None  # until all are told where they are

    def __repr__(self) -> str:
        return f"<SeveralChannels [{len(self._members)}, {len(self._in_line)} in line]>"

    @property
    def is_writable(self) -> bool:
        return self.reader.channel is self and not self.reader.is_paused

    def join(self, places: Sequence[tuple[Feed, Position]]) -> None:
        self.reader.channel = self
        self._keepalive.add(self.reader)
        made = Member if self.filter is None else FilteredMember
        self._members = [made(self, feed, cursor) for feed, cursor in places]
        for member in self._members:
            member.feed.watch(member)
            if member.cursor < member.feed.tail.head:
                self.line_up(member)

    def members(self) -> Sequence[Member]:
        return self._members

    # --- called by the connection --------------------------------------------------------------

    def pause(self, reader: Reader) -> None:
        self._keepalive.watch(reader)

    def resume(self, reader: Reader) -> None:
        self._keepalive.unwatch(reader)
        reader.pushed_at_ping = -1  # unknown: much may still be unsent
        self._serve_line()

    def leave(self, reader: Reader) -> None:
        self._keepalive.remove(reader)
        for member in self._members:
            member.feed.unwatch(member)
        self._in_line.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._on_leave(self)

    # --- writing -------------------------------------------------------------------------------

    def push_to(self, member: Member, notification: Notification) -> None:
        self.pushed += 1
        if member.reached >= notification.until:
            return  # it knows more than this process did
        is_next = member.reached == notification.from_
        if is_next and self.is_writable and not self._in_line and self._serving is None:
            self._take_next(member, notification)
        else:
            self.line_up(member)

    def _take_next(self, member: Member, notification: Notification) -> None:
        if isinstance(member, FilteredMember) and self.filter is not None:
            found = self.filter.pick(notification)
            member.reach(notification)
            if found is not None:
                self._write_next(member, begun_at(found, member.cursor))
            elif member.passed >= PASSED_CHANGES:
                self._give_position(member)
            elif self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(PASSED_SECONDS, self.give_positions)
        else:
            self._write_next(member, notification)

    def give_positions(self) -> None:
        """Tell the peer where it is in each channel, unless it is about to be told."""
        self._timer = None
        for member in self._members:
            if member.cursor < member.reached and member not in self._in_line and self.is_writable:
                self._give_position(member)

    def _give_position(self, member: Member) -> None:
        channel, base_url = member.feed.channel, self._journals.base_url
        until = member.reached
        self._write_next(member, render_nothing(channel, member.cursor, until, base_url=base_url))

    def _write_next(self, member: Member, notification: Notification) -> None:
        """The hot path: write to the socket. If that fails, the connection is closed."""
        try:
            member.cursor = notification.until
            frame = self.reader.wire_format.render(notification)
            self._sent.count(self.reader.wire_format, len(frame))
            self.write(frame)
        except Exception:
            close_for_a_bug([member])

    def write(self, data: bytes) -> None:
        write_cursors = self.reader.wire_format.write_cursors
        if write_cursors is not None:
            data = write_cursors(self._cursors().encode()) + data
        self.reader.write(data)

    def _cursors(self) -> str:
        return render_cursors(
            (member.feed.channel.set_name, member.cursor) for member in self._members
        )

    def line_up(self, member: Member) -> None:
        self._in_line[member] = None
        self._serve_line()

    def _serve_line(self) -> None:
        if self._serving is None and self._in_line and self.is_writable:
            self._serving = asyncio.create_task(self._serve(), name=f"serve {self!r}")

    async def _serve(self) -> None:
        """Serve the members in line, one after the other, while the socket takes it."""
        written = 0
        try:
            while self._in_line and self.is_writable:
                member, _ = self._in_line.popitem(last=False)
                written += await self._serve_one(member)
                if written > YIELD_BYTES:
                    written = 0
                    await asyncio.sleep(0)
        finally:
            self._serving = None

    async def _serve_one(self, member: Member) -> int:
        found = await read_next(self._journals, member.feed, member, self.filter)
        is_all = self.filter is None
        written = write_turn(member.feed, member, found, self._sent, is_all=is_all)
        if member.cursor < member.feed.tail.head and self.reader.channel is self:
            self._in_line[member] = None
            self._in_line.move_to_end(member, last=written > 0)  # who had no turn stays first
        return written
