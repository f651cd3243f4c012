"""The readers of one channel who want the same part of it.

Their cursor is where they were told to be, at the head too: what was not for them since then is
covered by their next notification. So that nobody has to read it all again, they are told where
they are from time to time, by a notification without changes. It is chosen and rendered once for
all who are at the same place; those who come are at other places until they are told the next time.
"""

import asyncio
from collections.abc import Callable

from rsnotify.channels.channel import ChannelReaders, Sent
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader import Reader
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.live.reading import PASSED_CHANGES, PASSED_SECONDS
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import Notification, begun_at, render_nothing


class FilteredReaders(ChannelReaders):
    """Writes to every reader what passes the filter, once and in order."""

    def __init__(
        self,
        journals: Journals,
        feed: Feed,
        keepalive: Keepalive,
        filter_: Filter,
        sent: Sent | None = None,
        on_leave: Callable[[Reader], None] = lambda _: None,
        *,
        passed_seconds: float = PASSED_SECONDS,
    ) -> None:
        super().__init__(journals, feed, keepalive, sent, on_leave)
        self.filter: Filter = filter_
        self._passed_seconds = passed_seconds
        self._passed = 0  # changes, since they were told where they are
        self._timer: asyncio.TimerHandle | None = None

    def push(self, notification: Notification) -> None:
        found = self.filter.pick(notification)
        self._passed += notification.count
        if found is not None or self._passed >= PASSED_CHANGES:
            self._give(found, notification.until)
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._passed_seconds, self.give_position)
        for reader in tuple(self._ahead):
            self._place(reader)

    def fall_behind(self, head: Position) -> None:
        self._begin_again()
        super().fall_behind(head)

    def _note_cursor(self, reader: Reader, head: Position) -> None:
        """It has a cursor of its own."""

    def give_position(self) -> None:
        """Tell those at the head where they are, unless they know."""
        self._give(None, self._feed.tail.head)

    def _give(self, found: Notification | None, until: Position) -> None:
        """Write this to those at the head, or only where they are."""
        self._begin_again()
        self.pushed += 1
        for wire_format, readers in self._at_head.items():
            for begin, group in _by_cursor(readers).items():
                if begin < until:  # else nothing was passed over for them
                    for reader in group:
                        reader.cursor = until
                    self._write_newest(wire_format, group, self._begun(found, begin, until))

    def _begun(self, found: Notification | None, begin: Position, until: Position) -> Notification:
        if found is not None:
            return begun_at(found, begin)
        base_url = self._journals.base_url
        return render_nothing(self._feed.channel, begin, until, base_url=base_url)

    def _begin_again(self) -> None:
        self._passed = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _by_cursor(readers: dict[Reader, None]) -> dict[Position, list[Reader]]:
    found: dict[Position, list[Reader]] = {}
    for reader in readers:
        found.setdefault(reader.cursor, []).append(reader)
    return found
