"""Readers who want a part of a channel, in every order of pushing, pausing, coming and going."""

import asyncio
import random
import re
import sys
from collections import Counter
from types import FrameType

import pytest

from rsnotify.channels.filtered import FilteredReaders
from rsnotify.channels.frames import WireFormat
from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.reader_limits import ReaderLimits
from rsnotify.channels.several import SeveralChannels
from rsnotify.errors import CloseCode, HistoryDeleted, Rejected, TooMany, TryAgain
from rsnotify.live.cache import Tail
from rsnotify.live.feed import Feed
from rsnotify.live.filter_counts import FILTERS, FILTERS_OF_ONE
from rsnotify.live.reading import PASSED_CHANGES, Reading
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.change_filter import Filter
from rsnotify.resourcesync.notification import (
    HELD_BYTES,
    ChannelName,
    Notification,
    render_forms,
    render_notification,
)
from tests.support.filter_takers import takers
from tests.unit.test_channel import Peer

CHANNEL = ChannelName("a", "change")
START = Position(1_000)
BASE = "http://hub"
OURS, OTHERS = "http://example.com/ours", "http://example.com/others"
WANTED = Filter(prefix=[OURS])
PLAIN = WireFormat("plain", lambda each: each.payload, b"")


class Hub:
    """A hub with one feed, whose journal is a list and whose tail is short."""

    def __init__(self) -> None:
        self.feed = Feed(CHANNEL, "now", START)
        self.feed.tail = Tail(START, max_bytes=20 * (HELD_BYTES + 600))
        self.journal: dict[int, Notification] = {}
        self.wanted: list[Position] = []
        self.base_url = BASE
        self.reading = self
        self.lost_before = self.kept_before = START

    def push(self, loc: str = OURS, number: int = 1) -> None:
        from_ = self.feed.tail.head
        xml = render_forms(Change(loc, "updated"))[0]
        rows = [(Position(from_ + each), xml) for each in range(1, number + 1)]
        made = render_notification(CHANNEL, from_, rows, base_url=BASE)
        if loc == OURS:
            self.wanted += [at for at, _ in rows]
        self.journal[from_] = made
        self.feed.push(made)

    async def batch_after(self, feed: Feed, cursor: Position) -> Notification | None:
        if cursor >= feed.tail.head:
            return None
        found = feed.tail.next_after(cursor)
        if found is None:
            await asyncio.sleep(0)
            if cursor in self.journal and cursor < self.kept_before:
                return self.journal[cursor]
            if cursor < self.lost_before:
                raise HistoryDeleted("gone", self.lost_before)
            found = self.journal[cursor]
        return found

    _base_url = BASE
    matching_after = Reading.matching_after


INTERVAL = re.compile(rb' from="([^"]+)" until="([^"]+)"')
CHANGED = re.compile(rb' datetime="([^"]+)"')


class Told:
    """What a peer has got: the positions of its changes, where each notification joins the last."""

    def __init__(self, begin: Position, taken: list[bytes]) -> None:
        self.cursor = begin
        self.positions: list[Position] = []
        self.empty = 0
        for payload in taken:
            self._take(payload)

    def _take(self, payload: bytes) -> None:
        ((from_, until),) = INTERVAL.findall(payload)
        assert Position.parse(from_.decode()) == self.cursor, "a gap or a repetition"
        self.cursor = Position.parse(until.decode())
        found = [Position.parse(each.decode()) for each in CHANGED.findall(payload)]
        self.positions += found
        self.empty += not found


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def readers(hub: Hub) -> FilteredReaders:
    return FilteredReaders(hub, hub.feed, Keepalive(send_timeout_seconds=60), WANTED)


def told_at_once(hub: Hub) -> FilteredReaders:
    """Where they are, as soon as something was passed over."""
    keepalive = Keepalive(send_timeout_seconds=60)
    return FilteredReaders(hub, hub.feed, keepalive, WANTED, passed_seconds=0.0)


async def settled(readers: FilteredReaders) -> None:
    while readers.is_catching_up:
        await asyncio.sleep(0)


def joined(readers: FilteredReaders, begin: Position, room: int = 1_000_000) -> Peer:
    peer = Peer(PLAIN, room)
    readers.join(peer, begin)
    return peer


async def test_what_is_not_for_a_reader_costs_it_no_write(hub, readers):
    peer = joined(readers, START)
    for _ in range(PASSED_CHANGES - 1):
        hub.push(OTHERS)
    assert peer.taken == []
    hub.push(OURS)
    told = Told(START, peer.taken)
    assert (told.positions, told.empty, told.cursor) == (hub.wanted, 0, hub.feed.tail.head)


@pytest.mark.parametrize("number", [1, 7, PASSED_CHANGES])
async def test_after_a_thousand_changes_a_reader_is_told_where_it_is(hub, readers, number):
    peer = joined(readers, START)
    while hub.feed.tail.head < START + PASSED_CHANGES:
        assert peer.taken == []
        hub.push(OTHERS, number)
    told = Told(START, peer.taken)
    assert (told.positions, told.empty, told.cursor) == ([], 1, hub.feed.tail.head)


async def test_after_a_while_a_reader_is_told_where_it_is(hub):
    readers = told_at_once(hub)
    first = joined(readers, START)
    hub.push(OTHERS)
    hub.push(OTHERS)
    second = joined(readers, hub.feed.tail.head)
    while not first.taken:
        await asyncio.sleep(0)
    assert Told(START, first.taken).cursor == hub.feed.tail.head
    assert second.taken == []
    hub.push(OURS)
    assert first.taken[-1] == second.taken[-1]
    assert (len(first.taken), len(second.taken)) == (2, 1)


async def test_nothing_is_said_while_nothing_is_passed_over(hub):
    readers = told_at_once(hub)
    peer = joined(readers, START)
    hub.push(OURS)
    for _ in range(5):
        await asyncio.sleep(0)
    assert Told(START, peer.taken).empty == 0


async def test_readers_who_are_at_one_place_get_the_very_same_bytes(hub, readers):
    peers = [joined(readers, START) for _ in range(3)]
    hub.push(OTHERS)
    late = joined(readers, hub.feed.tail.head)
    hub.push(OURS)
    assert peers[0].taken[0] is peers[1].taken[0] is peers[2].taken[0]
    assert late.taken[0] != peers[0].taken[0]
    hub.push(OURS)
    assert late.taken[1] is peers[0].taken[1]


async def test_a_reader_whose_socket_was_full_goes_on_where_it_was_told_to_be(hub, readers):
    peer = joined(readers, START, room=1)
    hub.push(OURS)
    assert peer.is_paused
    hub.push(OTHERS)
    hub.push(OURS)
    hub.push(OTHERS)
    peer.drain(100)
    await settled(readers)
    told = Told(START, peer.taken)
    assert (told.positions, told.cursor) == (hub.wanted, hub.feed.tail.head)


async def test_a_reader_that_is_paused_after_others_changes_misses_no_place(hub, readers):
    peer = joined(readers, START)
    hub.push(OTHERS)
    peer.is_paused = True  # by a ping that its socket did not take
    readers.pause(peer)
    hub.push(OTHERS)
    peer.drain(100)
    await settled(readers)
    hub.push(OURS)
    assert Told(START, peer.taken).positions == hub.wanted


async def test_a_loss_behind_a_readers_place_is_said(hub, readers):
    peer = joined(readers, START)
    hub.push(OTHERS)
    hub.lost_before = Position(START + 2)
    before = hub.feed.tail.head
    hub.feed.tail = Tail(Position(START + 10))
    readers.fall_behind(before)
    await settled(readers)
    assert peer.closed == CloseCode.HISTORY_GONE


async def test_a_reader_is_told_where_it_is_before_it_is_told_of_a_loss(hub):
    for _ in range(3):
        hub.push(OTHERS)
    hub.kept_before = reached = hub.feed.tail.head
    hub.lost_before = Position(reached + 1)
    hub.feed.tail = Tail(Position(reached + 10))
    found = await hub.matching_after(hub.feed, START, WANTED)
    assert (found.from_, found.until, found.count) == (START, reached, 0)
    with pytest.raises(Rejected):
        await hub.matching_after(hub.feed, found.until, WANTED)


@pytest.mark.parametrize("seed", range(8))
async def test_in_any_order_each_reader_gets_each_change_of_its_part_once(hub, readers, seed):
    chance = random.Random(seed)
    begun: dict[Peer, Position] = {}
    for _ in range(300):
        act = chance.choice(("push", "push", "push", "join", "drain", "leave", "wait", "time"))
        if act == "push":
            hub.push(chance.choice((OURS, OTHERS, OTHERS, OTHERS)), chance.choice((1, 1, 400)))
        elif act == "join":
            begin = chance.choice([*hub.journal, hub.feed.tail.head])
            begun[joined(readers, Position(begin), chance.choice((1, 3, 1_000)))] = Position(begin)
        elif act == "drain" and begun:
            chance.choice([*begun]).drain(chance.choice((1, 5, 1_000)))
        elif act == "leave" and begun and chance.random() < 0.3:
            peer = chance.choice([*begun])
            peer.leave_channel()
        elif act == "time":
            readers.give_position()
        await asyncio.sleep(0)
    for peer in begun:
        peer.drain(1_000_000)
    await settled(readers)
    hub.push(OURS)
    for peer, begin in begun.items():
        told = Told(begin, peer.taken)
        assert told.positions == [at for at in hub.wanted if begin < at <= told.cursor]
        if peer.channel is not None:
            assert told.cursor == hub.feed.tail.head


# --- several channels ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
async def test_over_a_connection_of_several_channels_likewise(hub, seed):
    chance = random.Random(seed)
    peer = Peer(PLAIN)
    several = SeveralChannels(
        hub, Keepalive(send_timeout_seconds=60), peer, lambda _: None, None, WANTED
    )
    several.join([(hub.feed, START)])
    for _ in range(200):
        if chance.random() < 0.8:
            hub.push(chance.choice((OURS, OTHERS, OTHERS)), chance.choice((1, 1, 400)))
        elif chance.random() < 0.3:
            several.give_positions()
        elif chance.random() < 0.5:
            peer.room = 1
        else:
            peer.drain(1_000)
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    peer.drain(1_000_000)
    while several.members()[0].reached < hub.feed.tail.head:
        await asyncio.sleep(0)
    hub.push(OURS)
    told = Told(START, peer.taken)
    assert told.positions == hub.wanted
    assert told.cursor == hub.feed.tail.head


# --- what it costs -------------------------------------------------------------------------------


async def calls_of_a_push(loc: str, count: int) -> Counter[str]:
    """Which Python functions a notification calls, with so many readers who want the same."""
    hub = Hub()
    readers = FilteredReaders(hub, hub.feed, Keepalive(send_timeout_seconds=60), WANTED)
    for _ in range(count):
        joined(readers, hub.feed.tail.head)
    hub.push(loc)  # what is done only once is done
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        hub.push(loc)
    finally:
        sys.setprofile(None)
    return called


async def test_a_notification_is_chosen_and_rendered_once_for_all_who_want_the_same():
    one, many = [await calls_of_a_push(OURS, count) for count in (1, 1_000)]
    assert many - one == {Peer.write.__qualname__: 999}


async def test_what_is_not_for_them_costs_no_more_for_many_than_for_one():
    assert await calls_of_a_push(OTHERS, 1_000) == await calls_of_a_push(OTHERS, 1)


# --- how many there may be -----------------------------------------------------------------------


def test_a_channel_has_so_many_different_filters_and_no_more():
    limits = ReaderLimits()
    filters = [Filter(prefix=[f"http://example.com/{number}"]) for number in range(FILTERS + 1)]
    readers = [Peer() for _ in filters]
    for address, reader, each in zip(takers(), readers[:-1], filters[:-1], strict=True):
        limits.enter(reader, address, [CHANNEL], each)
    with pytest.raises(TryAgain, match="readers with 200 different filters: read it without one"):
        limits.enter(readers[-1], "b", [CHANNEL], filters[-1])
    limits.enter(Peer(), "b", [CHANNEL], filters[0])
    limits.enter(Peer(), "b", [CHANNEL])
    limits.enter(Peer(), "b", [ChannelName("b", "change")], filters[-1])
    limits.leave(readers[1], [CHANNEL], filters[1])
    limits.enter(readers[-1], "c", [CHANNEL], filters[-1])


@pytest.mark.parametrize(
    ("others", "most"), [(0, FILTERS_OF_ONE), (50, 38), (140, 15), (194, 2), (196, 1), (199, 1)]
)
def test_an_address_has_the_fewer_filters_the_fewer_are_free(others, most):
    limits = ReaderLimits()
    for number in range(others):
        limits.enter(Peer(), f"other {number}", [CHANNEL], Filter(prefix=[f"http://o/{number}"]))
    for number in range(most):
        limits.enter(Peer(), "a", [CHANNEL], Filter(prefix=[f"http://a/{number}"]))
    free = FILTERS - others - most
    with pytest.raises(TooMany, match=f"has {most} different filters at .* while {free} are free"):
        limits.enter(Peer(), "a", [CHANNEL], Filter(prefix=["http://a/more"]))


def test_one_address_has_so_many_different_filters_of_a_channel_and_leaves_room_for_others():
    limits = ReaderLimits()
    filters = [
        Filter(prefix=[f"http://example.com/{number}"]) for number in range(FILTERS_OF_ONE + 1)
    ]
    readers = [Peer() for _ in filters]
    for reader, each in zip(readers[:-1], filters, strict=False):
        limits.enter(reader, "a", [CHANNEL], each)
    with pytest.raises(TooMany, match=f"your address has {FILTERS_OF_ONE} different filters at"):
        limits.enter(readers[-1], "a", [CHANNEL], filters[-1])
    other = Peer()
    limits.enter(other, "b", [CHANNEL], filters[-1])
    with pytest.raises(TooMany):  # it would keep it when the other leaves
        limits.enter(readers[-1], "a", [CHANNEL], filters[-1])
    limits.enter(Peer(), "a", [CHANNEL], filters[0])
    limits.enter(Peer(), "a", [CHANNEL])
    limits.enter(Peer(), "a", [ChannelName("b", "change")], filters[-1])
    limits.leave(readers[1], [CHANNEL], filters[1])
    limits.enter(readers[-1], "a", [CHANNEL], filters[-1])


def test_a_filter_that_nobody_has_any_more_does_not_count():
    limits = ReaderLimits()
    for number in range(10_000):
        reader, each = Peer(), Filter(prefix=[f"http://example.com/{number}"])
        limits.enter(reader, "a", [CHANNEL], each)
        limits.leave(reader, [CHANNEL], each)
