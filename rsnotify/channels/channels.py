"""All channels of a process that have readers: readers join them, and are disconnected at the end.

A reader joins with what its admission has found; it may have waited long since. Nothing here writes
a notification.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from rsnotify.access.access import Access
from rsnotify.channels.admission import Admission, ChannelEntry
from rsnotify.channels.channel import ChannelReaders, Sent
from rsnotify.channels.filtered import FilteredReaders
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader import Reader
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.reader_limits import ReaderLimits
from rsnotify.channels.revocations import Revocations
from rsnotify.channels.several import SeveralChannels
from rsnotify.errors import CloseCode, Rejected, TryAgain
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.sets.options import SetRecord

DRAIN_STEPS = 100
DRAINED = CloseCode.GOING_AWAY, "the hub is shutting down; reconnect with your cursor"


class Channels:
    """All channels that have readers."""

    def __init__(
        self,
        journals: Journals,
        access: Access,
        keepalive: Keepalive,
        *,
        allowed_origins: tuple[str, ...] | None = None,
        limits: ReaderLimits | None = None,
        reader_input: ReaderInput | None = None,
    ) -> None:
        self._journals = journals
        self._keepalive = keepalive
        self._channels: dict[tuple[Feed, Filter | None], ChannelReaders] = {}
        self._several: set[SeveralChannels] = set()
        self.is_draining = False
        self.sent = Sent()
        self.limits = ReaderLimits() if limits is None else limits
        self.reader_input = ReaderInput() if reader_input is None else reader_input
        self.revocations = Revocations(access)
        self.admission = Admission(journals, access, self.limits, allowed_origins)

    def join(self, reader: Reader, entry: ChannelEntry | Rejected | TryAgain) -> None:
        """Let the reader follow its channels, or close it with the reason."""
        try:
            if not isinstance(entry, ChannelEntry):
                raise entry
            if self.is_draining:
                reader.close(*DRAINED)
            elif reader.is_open:
                self._check_unchanged(entry.admitted.sets)
                self._enter(reader, entry)
                self.revocations.add(reader, entry.admitted.token)
        except (Rejected, TryAgain) as error:
            reader.close(error.close_code, error.detail)

    def _check_unchanged(self, admitted: Sequence[SetRecord]) -> None:
        """Refuse a reader that had not joined yet when the readers of its set were closed. A peer
        chooses how long it takes from its admission until it joins."""
        for before in admitted:
            self._journals.require_unchanged(before)

    def _enter(self, reader: Reader, entry: ChannelEntry) -> None:
        places = [(self._journals.feed(name), cursor) for name, cursor in entry.places]
        names = [feed.channel for feed, _ in places]
        self.limits.enter(reader, entry.address, names, entry.filter)
        if entry.is_several:
            leave = self._leave_several
            several = SeveralChannels(
                self._journals, self._keepalive, reader, leave, self.sent, entry.filter
            )
            self._several.add(several)
            several.join(places)
        else:
            (feed, cursor) = places[0]
            self._channel_of(feed, entry.filter).join(reader, cursor)

    def _leave_several(self, several: SeveralChannels) -> None:
        self._several.discard(several)
        names = [each.feed.channel for each in several.members()]
        self.limits.leave(several.reader, names, several.filter)

    def _channel_of(self, feed: Feed, filter_: Filter | None) -> ChannelReaders:
        channel = self._channels.get((feed, filter_))
        if channel is None:
            self._drop_channels_without_readers()
            channel = self._channels[feed, filter_] = self._made(feed, filter_)
        return channel

    def _made(self, feed: Feed, filter_: Filter | None) -> ChannelReaders:
        leave = partial(self.limits.leave, channels=[feed.channel], filter_=filter_)
        shared = (self._journals, feed, self._keepalive)
        if filter_ is None:
            return ChannelReaders(*shared, self.sent, leave)
        return FilteredReaders(*shared, filter_, self.sent, leave)

    def behind(self) -> dict[Feed, list[Position]]:
        """The cursors of readers that have not been sent everything, by channel."""
        found: dict[Feed, list[Position]] = {}
        for (feed, _), channel in self._channels.items():
            if cursors := channel.behind():
                found.setdefault(feed, []).extend(cursors)
        for several in self._several:
            for member in several.members():
                if member.reached < member.feed.tail.head:
                    found.setdefault(member.feed, []).append(member.cursor)
        return found

    def _drop_channels_without_readers(self) -> None:
        for key in [key for key, channel in self._channels.items() if not channel.is_read]:
            del self._channels[key]

    async def drain(self, seconds: float) -> None:
        """Disconnect all readers, spread over this time, so that they do not all return at once."""
        self.is_draining = True
        readers = [reader for channel in self._channels.values() for reader in channel.readers]
        readers += [several.reader for several in self._several]
        step = -(-len(readers) // DRAIN_STEPS)
        for start in range(0, len(readers), step or 1):
            for reader in readers[start : start + step]:
                reader.close(*DRAINED)
            await asyncio.sleep(seconds / DRAIN_STEPS)
