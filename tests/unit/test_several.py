"""A reader of several channels over one connection, in every order of pushing, pausing, leaving."""

import asyncio
import random

import pytest

from rsnotify.channels.keepalive import Keepalive
from rsnotify.channels.several import SeveralChannels
from rsnotify.live.feed import Feed
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import HELD_BYTES, ChannelName, Notification
from tests.unit.test_channel import BROKEN, PLAIN, START, OneChannelHub, Peer


class OneSet(OneChannelHub):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.feed = Feed(ChannelName(name, "change"), "now", START)
        self.feed.tail._max_bytes = 20 * HELD_BYTES

    def push(self) -> None:
        from_ = self.feed.tail.head
        payload = f"{self.name} {len(self.journal)}\n".encode()
        made = Notification(from_, Position(from_ + 1), 1, payload, slice(0))
        self.journal.append(made)
        self.feed.push(made)


class SeveralSets(dict[str, OneSet]):
    """A hub with these sets."""

    def __init__(self, *names: str) -> None:
        super().__init__({name: OneSet(name) for name in names})
        self.reading = self

    async def after(self, feed: Feed, cursor: Position) -> Notification | None:
        return await self[feed.channel.set_name].after(feed, cursor)

    def read_by(self, peer: Peer, **cursors: Position) -> SeveralChannels:
        keepalive = Keepalive(send_timeout_seconds=60)
        several = SeveralChannels(self, keepalive, peer, set().discard)
        several.join([(each.feed, cursors.get(name, START)) for name, each in self.items()])
        return several


def taken(peer: Peer) -> dict[str, list[int]]:
    """The numbers of what came, for each set."""
    found: dict[str, list[int]] = {}
    for line in b"".join(peer.taken).decode().splitlines():
        name, _, number = line.partition(" ")
        found.setdefault(name, []).append(int(number))
    return found


async def settled(several: SeveralChannels) -> None:
    while several._serving is not None:
        await asyncio.sleep(0)


async def test_a_gap_in_one_of_them_ends_the_connection():
    sets, peer = SeveralSets("a", "b"), Peer(PLAIN)
    several = sets.read_by(peer)
    sets["a"].push()
    sets["a"].trimmed_before = Position(START + 5)
    sets["a"].feed.pass_gap(Position(START + 5))
    await settled(several)
    assert peer.closed == 4410, "nothing had to be published for it"
    sets["b"].push()
    assert taken(peer) == {"a": [0]}


@pytest.mark.parametrize("backlog", [0, 10])
@pytest.mark.parametrize("is_in_memory", [True, False])
async def test_a_busy_set_starves_no_other(is_in_memory, backlog):
    """The socket takes one notification at a time, and the busy set always has another."""
    sets, peer = SeveralSets("busy", "a", "b"), Peer(PLAIN, room=1)
    several = sets.read_by(peer)
    for _ in range(1 + backlog):
        sets["busy"].push()
    for name in ("a", "b"):
        sets[name].push()
        if not is_in_memory:
            sets[name].feed.release()
    for _ in range(3):
        peer.drain(1)
        sets["busy"].push()
        await settled(several)
    assert taken(peer) == {"busy": [0, 1], "a": [0], "b": [0]}


async def test_who_lost_its_turn_to_a_ping_has_the_next():
    sets, peer = SeveralSets("a", "b"), Peer(PLAIN, room=1)
    sets["a"].push()
    sets["b"].push()
    sets["a"].feed.release()
    several = sets.read_by(peer)
    await asyncio.sleep(0)  # the change of a is being read
    peer.write(b"")
    await settled(several)
    assert peer.taken == [b""]
    peer.drain(1)
    await settled(several)
    assert peer.taken == [b"", b"a 0\n"]


async def test_who_knows_more_than_this_process_gets_only_what_follows():
    sets, peer = SeveralSets("a"), Peer(PLAIN)
    sets.read_by(peer, a=Position(START + 2))
    for _ in range(3):
        sets["a"].push()
    assert taken(peer) == {"a": [2]}


async def test_nothing_is_written_to_who_has_left():
    sets, peer = SeveralSets("a", "b"), Peer(PLAIN)
    sets["a"].push()
    sets["a"].feed.release()
    several = sets.read_by(peer)
    peer.close(1006, "")
    await settled(several)
    sets["b"].push()
    assert peer.taken == []
    assert not any(each.feed.watchers for each in sets.values())


async def test_what_is_gone_in_one_set_closes_the_connection():
    sets, peer = SeveralSets("a", "b"), Peer(PLAIN)
    sets["b"].push()
    sets["b"].feed.release()
    sets["b"].trimmed_before = Position(START + 1)
    await settled(sets.read_by(peer))
    assert peer.closed == 4410


async def test_who_cannot_be_written_to_what_it_missed_is_closed_with_1011():
    sets, peer = SeveralSets("a", "b"), Peer(BROKEN)
    sets["a"].push()
    await settled(sets.read_by(peer))
    assert peer.closed == 1011
    assert not any(each.feed.watchers for each in sets.values())


async def test_who_cannot_be_written_to_at_the_head_is_closed_with_1011():
    sets, peer = SeveralSets("a", "b"), Peer(BROKEN)
    sets.read_by(peer)
    sets["a"].push()
    assert peer.closed == 1011
    assert not any(each.feed.watchers for each in sets.values())


@pytest.mark.parametrize("seed", range(20))
async def test_each_set_s_changes_come_once_and_in_order_whatever_happens(seed):
    chance = random.Random(seed)
    sets, peer = SeveralSets("a", "b", "c"), Peer(PLAIN, room=3)
    several = sets.read_by(peer)
    for _ in range(300):
        match chance.randrange(5):
            case 0 | 1:
                sets[chance.choice("aaaabc")].push()
            case 2:
                peer.drain(chance.randrange(1, 5))
            case 3:
                await asyncio.sleep(0)
            case 4:
                sets[chance.choice("abc")].feed.release()
    peer.drain(1_000_000)
    await settled(several)
    assert taken(peer) == {
        name: list(range(len(each.journal))) for name, each in sets.items() if each.journal
    }
