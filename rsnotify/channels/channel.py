"""The readers of one channel: at its head, behind or ahead of it, or waiting for a socket or read.

Each reader is in exactly one of these places. At the head its cursor is the tail's head; elsewhere
it has its own. Nothing is awaited between reading the head and joining it, so no change is lost
between history and live delivery. Nothing here knows whether a reader is a WebSocket or SSE.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from itertools import repeat
from typing import Protocol

from rsnotify.channels.frames import WIRE_FORMATS, WireFormat
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader import Reader
from rsnotify.errors import INTERNAL_ERROR, BecamePrivate, CloseCode, NoSuchSet, Rejected, TryAgain
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import Notification

log = logging.getLogger(__name__)

SEND_BYTES = 64 * 1024  # to one reader, before it is the turn of the next one
YIELD_BYTES = 1024 * 1024  # before the event loop serves others


FORM_NAMES = sorted({each.name for formats in WIRE_FORMATS.values() for each in formats})


class Sent:
    """Counts the notifications that this process has written in each form, and their bytes."""

    def __init__(self) -> None:
        self.notifications = dict.fromkeys(FORM_NAMES, 0)
        self.bytes = dict.fromkeys(FORM_NAMES, 0)

    def count(self, wire_format: WireFormat, size: int, readers: int = 1) -> None:
        """Count a notification of this size that was written to so many readers."""
        name = wire_format.name
        self.notifications[name] = self.notifications.get(name, 0) + readers
        self.bytes[name] = self.bytes.get(name, 0) + readers * size


class ChannelReader(Protocol):
    """What reads one channel: a `Reader` of its own, or a `Member` of one that reads several."""

    cursor: Position

    @property
    def is_paused(self) -> bool: ...

    @property
    def wire_format(self) -> WireFormat: ...

    def write(self, data: bytes, /) -> None: ...

    def close(self, code: int, reason: str) -> None: ...


async def read_next(
    journals: Journals, feed: Feed, reader: ChannelReader, filter_: Filter | None = None
) -> Notification | None:
    """Read what follows the cursor; None at the head. If that fails, the reader is closed."""
    try:
        if filter_ is not None:
            return await journals.reading.matching_after(feed, reader.cursor, filter_)
        return await journals.reading.after(feed, reader.cursor)
    except (Rejected, TryAgain) as error:
        reader.close(error.close_code, error.detail)
    except Exception:
        close_for_a_bug([reader])
    return None


def write_turn(
    feed: Feed,
    reader: ChannelReader,
    found: Notification | None,
    sent: Sent,
    *,
    is_all: bool = True,
) -> int:
    """Write this and, if the reader wants all changes, what follows, some SEND_BYTES; the bytes
    written. If it fails, close it."""
    try:
        return _write(feed, reader, found, sent, SEND_BYTES if is_all else 0)
    except Exception:
        close_for_a_bug([reader])
    return 0


def _write(
    feed: Feed, reader: ChannelReader, found: Notification | None, sent: Sent, most: int
) -> int:
    written = 0
    while found is not None and not reader.is_paused:
        reader.cursor = found.until
        frame = reader.wire_format.render(found, is_newest=feed.is_newest(found.until))
        reader.write(frame)
        sent.count(reader.wire_format, len(frame))
        written += len(frame)
        found = feed.tail.next_after(reader.cursor) if written < most else None
    return written


def close_for_a_bug(readers: Sequence[ChannelReader]) -> None:
    """End the connections of those who would otherwise miss something and not know it."""
    log.exception("internal error while %d readers are served: %r", len(readers), readers[0])
    for reader in readers:
        reader.close(CloseCode.FAILED, INTERNAL_ERROR)


def write_to_all(readers: Collection[Reader], data: bytes) -> None:
    """Write to each reader; none may be paused. Most sockets take all of it, and no Python runs
    between two writes. What a socket did not take, its reader writes itself."""
    writing = map(os.write, [reader.descriptor for reader in readers], repeat(data))
    written: list[int] = []
    while len(written) < len(readers):
        try:
            written.extend(writing)  # up to an error; the next turn goes on after it
        except OSError:
            written.append(0)
    if written.count(len(data)) == len(readers):
        return
    for reader, count in zip(readers, written, strict=True):
        if count != len(data):
            reader.write(data[count:])


class ChannelReaders:
    """Writes each notification of a feed to every reader, once and in order."""

    filter: Filter | None = None  # all want all changes

    def __init__(
        self,
        journals: Journals,
        feed: Feed,
        keepalive: Keepalive,
        sent: Sent | None = None,
        on_leave: Callable[[Reader], None] = lambda _: None,
    ) -> None:
        self.pushed = 0
        self._journals = journals
        self._feed = feed
        self._keepalive = keepalive
        self._sent = Sent() if sent is None else sent
        self._on_leave = on_leave
        self._at_head: dict[WireFormat, dict[Reader, None]] = {}  # half the memory of a set
        self._behind: OrderedDict[Reader, None] = OrderedDict()
        self._waiting: set[Reader] = set()  # for their sockets, or for a read from the journal
        self._ahead: set[Reader] = set()  # of the journal as this process knows it
        self._catching_up: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        behind = len(self.readers) - self.writes
        return f"<ChannelReaders {self._feed.channel} [{self.writes} at the head, {behind} behind]>"

    @property
    def writes(self) -> int:
        return sum(map(len, self._at_head.values()))

    @property
    def readers(self) -> list[Reader]:
        at_head = [reader for group in self._at_head.values() for reader in group]
        return [*at_head, *self._behind, *self._waiting, *self._ahead]

    @property
    def is_read(self) -> bool:
        elsewhere = self._behind or self._waiting or self._ahead
        return bool(elsewhere) or any(self._at_head.values())

    @property
    def is_catching_up(self) -> bool:
        return self._catching_up is not None

    def behind(self) -> Sequence[Position]:
        """The cursors of those who have not been sent everything."""
        if not self._behind and not self._waiting:
            return ()
        head = self._feed.tail.head
        readers = (*self._behind, *self._waiting)
        return [reader.cursor for reader in readers if reader.cursor < head]

    # --- coming and going ----------------------------------------------------------------------

    def join(self, reader: Reader, cursor: Position) -> None:
        self._feed.watch(self)
        reader.channel, reader.cursor = self, cursor
        self._keepalive.add(reader)
        self._place(reader)

    def leave(self, reader: Reader) -> None:
        self._keepalive.remove(reader)
        self._take_out(reader)
        self._on_leave(reader)
        if not self.is_read:
            self._feed.unwatch(self)

    def pause(self, reader: Reader) -> None:
        """The reader's socket is full: remember its position and go on with the others."""
        if reader in self._at_head.get(reader.wire_format, ()):
            self._note_cursor(reader, self._feed.tail.head)
        self._take_out(reader)
        self._waiting.add(reader)
        self._keepalive.watch(reader)

    def _note_cursor(self, reader: Reader, head: Position) -> None:
        """The reader was at the head, which was there, and is not any more."""
        reader.cursor = head

    def resume(self, reader: Reader) -> None:
        self._keepalive.unwatch(reader)
        self._place(reader)

    def _place(self, reader: Reader) -> None:
        """Put the reader where its cursor belongs."""
        self._take_out(reader)
        head = self._feed.tail.head
        if reader.is_paused:
            self._waiting.add(reader)
        elif reader.cursor > head:
            self._ahead.add(reader)
        elif reader.cursor == head:
            reader.pushed_at_ping = -1  # unknown: much may still be unsent
            self._at_head.setdefault(reader.wire_format, {})[reader] = None
        else:
            self._behind[reader] = None
            self._start_catching_up()

    def _take_out(self, reader: Reader) -> None:
        self._at_head.get(reader.wire_format, {}).pop(reader, None)
        self._behind.pop(reader, None)
        self._waiting.discard(reader)
        self._ahead.discard(reader)

    # --- called by the feed --------------------------------------------------------------------

    def push(self, notification: Notification) -> None:
        """The hot path: one frame for all readers, one write for each.

        If that fails for those of one form, they are closed, and the others get theirs.
        """
        self.pushed += 1
        for wire_format, readers in self._at_head.items():
            if readers:
                # A copy: a reader that is paused leaves.
                self._write_newest(wire_format, tuple(readers), notification)
        for reader in tuple(self._ahead):
            self._place(reader)

    def _write_newest(
        self, wire_format: WireFormat, readers: Sequence[Reader], notification: Notification
    ) -> None:
        try:
            is_newest = self._feed.is_newest(notification.until)
            frame = wire_format.render(notification, is_newest=is_newest)
            self._sent.count(wire_format, len(frame), len(readers))
            write_to_all(readers, frame)
        except Exception:
            close_for_a_bug(readers)

    def fall_behind(self, head: Position) -> None:
        """Whoever is at the head, which was here, becomes a reader that is behind."""
        for group in self._at_head.values():
            for reader in tuple(group):
                self._note_cursor(reader, head)
                self._place(reader)
        for reader in tuple(self._ahead):
            self._place(reader)

    def turn_private(self) -> None:
        self._close_all(BecamePrivate(self._feed.channel.set_name))

    def end(self) -> None:
        self._close_all(NoSuchSet(self._feed.channel.set_name))

    def _close_all(self, why: Rejected | TryAgain) -> None:
        for reader in self.readers:
            reader.close(why.close_code, why.detail)

    # --- catching up ---------------------------------------------------------------------------

    def _start_catching_up(self) -> None:
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self._catch_up(), name=f"catch up {self!r}")

    async def _catch_up(self) -> None:
        """Serve the readers that are behind, one after the other, until none is."""
        written = 0
        try:
            while self._behind:
                reader, _ = self._behind.popitem(last=False)
                self._waiting.add(reader)
                written += await self._serve_one(reader)
                if written > YIELD_BYTES:
                    written = 0
                    await asyncio.sleep(0)
        finally:
            self._catching_up = None

    async def _serve_one(self, reader: Reader) -> int:
        """Write what one reader has missed, up to the end of its turn; how many bytes."""
        found = await read_next(self._journals, self._feed, reader, self.filter)
        if reader not in self._waiting:  # it has left, or was placed again
            return 0
        is_all = self.filter is None
        written = write_turn(self._feed, reader, found, self._sent, is_all=is_all)
        if reader in self._waiting:  # it has not been closed
            self._place(reader)
        return written
