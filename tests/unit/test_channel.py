"""A channel's readers, in every order of pushing, pausing, coming and going."""

import asyncio
import random
from typing import Any

import pytest

from rsnotify.channels.channel import ChannelReaders
from rsnotify.channels.frames import TEXT, WireFormat
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader import Reader
from rsnotify.channels.several import SeveralChannels
from rsnotify.errors import Rejected
from rsnotify.live.cache import Tail
from rsnotify.live.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import HELD_BYTES, ChannelName, Notification

CHANNEL = ChannelName("dataset1", "change")
START = Position(1_000)


class Peer(Reader):
    """A reader that takes so many frames before its socket is full."""

    is_open = True

    def __init__(self, wire_format: WireFormat = TEXT, room: int = 1_000_000) -> None:
        super().__init__(wire_format)
        self.room = room
        self.taken: list[bytes] = []
        self.closed: int | None = None

    def write(self, data: bytes) -> None:
        assert not self.is_paused, "written to although its socket is full"
        self.taken.append(data)
        self.room -= 1
        if self.room <= 0:
            self.is_paused = True
            assert self.channel is not None
            self.channel.pause(self)

    def drain(self, room: int) -> None:
        self.room = room
        if self.is_paused and self.channel is not None:
            self.is_paused = False
            self.channel.resume(self)

    def ping(self) -> bool:
        return True

    def backlog(self) -> int:
        return 0

    def close(self, code: int, reason: str) -> None:  # noqa: ARG002
        self.closed = code
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.leave(self)

    @property
    def numbers(self) -> list[int]:
        return [int(data) for data in self.taken]


class OneChannelHub:
    """A hub with one feed, whose journal is a list and whose tail is short."""

    def __init__(self) -> None:
        self.feed = Feed(CHANNEL, "now", START)
        self.feed.tail = Tail(START, max_bytes=20 * HELD_BYTES)
        self.journal: list[Notification] = []
        self.reads = 0
        self.trimmed_before = START
        self.reading = self

    def push(self) -> None:
        from_ = self.feed.tail.head
        number = len(self.journal)
        made = Notification(from_, Position(from_ + 1), 1, b"%d" % number, slice(0))
        self.journal.append(made)
        self.feed.push(made)

    async def after(self, feed: Feed, cursor: Position) -> Notification | None:
        if cursor >= feed.tail.head:
            return None
        found = feed.tail.next_after(cursor)
        if found is None:
            self.reads += 1
            await asyncio.sleep(0)
            if cursor < self.trimmed_before:
                raise Rejected("gone", close_code=4410)
            found = self.journal[cursor - START]
        return found


@pytest.fixture
def hub() -> OneChannelHub:
    return OneChannelHub()


@pytest.fixture
def channel(hub: OneChannelHub) -> ChannelReaders:
    return ChannelReaders(hub, hub.feed, Keepalive(send_timeout_seconds=60))


async def settled(channel: ChannelReaders) -> None:
    while channel.is_catching_up:
        await asyncio.sleep(0)


PLAIN = WireFormat("plain", lambda notification: notification.payload, b"")
FROM = WireFormat("from", lambda notification: b"%d" % notification.from_, b"")
BROKEN = WireFormat("broken", lambda _: b"%d" % "none", b"")


async def test_readers_of_one_form_get_the_very_same_bytes(hub, channel):
    peers = [Peer() for _ in range(3)]
    for peer in peers:
        channel.join(peer, START)
    hub.push()
    assert len({id(peer.taken[0]) for peer in peers}) == 1


@pytest.mark.parametrize("is_several", [False, True])
async def test_a_reader_that_comes_with_a_full_socket_and_reads_nothing_is_let_go(hub, is_several):
    times = [0.0]
    keepalive = Keepalive(send_timeout_seconds=60, clock=lambda: times[-1])
    peer = Peer()
    peer.is_paused = True
    served: Any = hub
    if is_several:
        SeveralChannels(served, keepalive, peer, lambda _: None).join([(hub.feed, START)])
    else:
        ChannelReaders(served, hub.feed, keepalive).join(peer, START)
    for now, closed in ((59.9, None), (60.0, 1013)):
        times.append(now)
        keepalive.tick()
        assert peer.closed == closed


async def test_it_says_to_how_many_a_push_writes(hub, channel):
    hub.push()
    peers = [Peer(TEXT), Peer(PLAIN), Peer(PLAIN, room=1)]
    for peer in peers:
        channel.join(peer, hub.feed.tail.head)
    channel.join(Peer(PLAIN), START)  # behind
    channel.join(Peer(PLAIN), Position(START + 9))  # ahead
    assert channel.writes == 3
    hub.push()
    assert [len(peer.taken) for peer in peers] == [1, 1, 1]
    assert channel.writes == 2, "one socket is full"
    peers[0].close(1001, "")
    assert channel.writes == 1


async def test_one_full_socket_holds_nobody_else(hub, channel):
    slow, fast = Peer(PLAIN, room=1), Peer(PLAIN)
    channel.join(slow, START)
    channel.join(fast, START)
    for _ in range(50):
        hub.push()
    await settled(channel)
    assert (slow.numbers, fast.numbers) == ([0], list(range(50)))
    slow.drain(1_000)
    await settled(channel)
    assert slow.numbers == fast.numbers


async def test_a_reader_ahead_of_this_process_waits_until_the_journal_reaches_it(hub, channel):
    ahead = Peer(PLAIN)
    channel.join(ahead, Position(START + 2))
    assert not channel.is_catching_up, "there is nothing to read yet"
    for _ in range(4):
        hub.push()
    await settled(channel)
    assert ahead.numbers == [2, 3]


async def test_who_asks_for_what_is_gone_is_closed_and_the_others_go_on(hub, channel):
    for _ in range(50):
        hub.push()
    hub.trimmed_before = Position(START + 5)
    early, late = Peer(PLAIN), Peer(PLAIN)
    channel.join(early, START)
    channel.join(late, Position(START + 5))
    await settled(channel)
    assert early.closed == 4410
    assert late.numbers == list(range(5, 50))


async def test_who_cannot_be_written_to_is_closed_with_1011_and_the_others_go_on(
    hub, channel, caplog
):
    for _ in range(3):
        hub.push()
    broken, other = Peer(BROKEN), Peer(PLAIN)
    channel.join(broken, START)
    channel.join(other, START)
    await settled(channel)
    assert (broken.closed, other.numbers) == (1011, [0, 1, 2])
    assert channel.readers == [other]
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_who_cannot_be_written_to_at_the_head_is_closed_with_1011_and_the_others_go_on(
    hub, channel, caplog
):
    broken, other = [Peer(BROKEN) for _ in range(3)], Peer(PLAIN)
    for peer in (*broken, other):
        channel.join(peer, START)
    hub.push()
    assert [peer.closed for peer in broken] == [1011] * 3
    assert other.numbers == [0]
    assert channel.readers == [other]
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_who_leaves_while_the_journal_is_read_gets_nothing_more(hub, channel):
    for _ in range(50):
        hub.push()
    peer = Peer(PLAIN)
    channel.join(peer, START)
    await asyncio.sleep(0)
    peer.close(1000, "")
    await settled(channel)
    assert peer.taken == []
    assert channel.readers == []


async def test_a_channel_is_watched_as_long_as_somebody_reads_it(hub, channel):
    first, slow = Peer(PLAIN), Peer(PLAIN, room=1)
    channel.join(first, START)
    channel.join(slow, START)
    hub.push()
    first.close(1000, "")
    assert hub.feed.is_watched, "one waits for its socket"
    slow.close(1000, "")
    assert not hub.feed.is_watched
    channel.join(Peer(PLAIN), START)
    assert hub.feed.is_watched


async def test_the_end_of_a_channel_reaches_readers_wherever_they_are(hub, channel):
    for _ in range(50):
        hub.push()
    peers = [Peer(), Peer(room=1), Peer(), Peer()]
    for peer, cursor in zip(peers, (1050, 1049, 1000, 2000), strict=True):
        channel.join(peer, Position(cursor))
    hub.feed.end()
    assert [peer.closed for peer in peers] == [4404] * 4


async def test_no_reader_passes_a_gap_without_being_told(hub, channel):
    """Also who is at the head, and at once: nothing has to be published for it."""
    at_head, paused, ahead, far = Peer(FROM), Peer(FROM, room=1), Peer(FROM), Peer(FROM)
    channel.join(at_head, START)
    channel.join(paused, START)
    channel.join(ahead, Position(START + 5))
    channel.join(far, Position(START + 6))
    hub.push()
    hub.trimmed_before = Position(START + 5)
    hub.feed.pass_gap(Position(START + 5))
    behind = Peer(FROM)
    channel.join(behind, START)
    await settled(channel)
    assert (at_head.numbers, at_head.closed) == ([START], 4410)
    assert (behind.numbers, behind.closed) == ([], 4410)
    assert paused.closed is None, "its socket is full"
    paused.drain(100)
    await settled(channel)
    assert (paused.numbers, paused.closed) == ([START], 4410)
    hub.journal += hub.journal * 4  # so that the next one is the sixth
    for _ in range(2):
        hub.push()
    await settled(channel)
    assert (ahead.numbers, ahead.closed) == ([START + 5, START + 6], None)
    assert (far.numbers, far.closed) == ([START + 6], None)


async def test_a_reader_behind_a_gap_gets_what_is_left_before_it(hub, channel):
    """It had not been sent all that is left, and is told afterwards."""
    peer = Peer(FROM, room=1)
    channel.join(peer, START)
    for _ in range(3):
        hub.push()
    kept = [*hub.journal]
    hub.feed.pass_gap(Position(START + 9))

    async def left(feed: Feed, cursor: Position) -> Notification | None:
        await asyncio.sleep(0)
        found = next((each for each in kept if each.from_ == cursor), None)
        if found is None:
            raise Rejected("gone", close_code=4410)
        return found

    hub.after = left
    peer.drain(100)
    await settled(channel)
    assert (peer.numbers, peer.closed) == ([START, START + 1, START + 2], 4410)


@pytest.mark.parametrize("seed", range(30))
async def test_every_reader_gets_every_change_once_and_in_order_whatever_happens(
    hub, channel, seed
):
    chance = random.Random(seed)
    peers: list[tuple[Peer, int]] = []
    for _ in range(400):
        act = chance.randrange(6)
        if act == 0:
            begin = chance.randrange(len(hub.journal) + 1)
            peer = Peer(PLAIN, room=chance.choice([1, 3, 100]))
            peers.append((peer, begin))
            channel.join(peer, Position(START + begin))
        elif act == 1 and peers:
            chance.choice(peers)[0].drain(chance.choice([1, 5]))
        elif act == 2:
            await asyncio.sleep(0)
        elif act == 3 and chance.randrange(4) == 0:
            hub.feed.release()  # memory was needed elsewhere
        else:
            hub.push()
    for peer, _ in peers:
        peer.drain(1_000_000)
    await settled(channel)
    hub.push()
    for peer, begin in peers:
        assert peer.numbers == list(range(begin, len(hub.journal)))
    assert hub.reads > 0
