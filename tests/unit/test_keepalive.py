"""Pings spread over time, and how much patience each reader deserves."""

import pytest

from rsnotify.channels.frames import TEXT
from rsnotify.channels.keepalive import PING_SECONDS, PONG_SECONDS, SLOTS, TICK_SECONDS, Keepalive
from rsnotify.channels.reader import Reader

SEND_TIMEOUT_SECONDS = 60.0


class QuietChannel:
    """A channel in which nothing happens but what `pushed` says."""

    pushed = 0


class Peer(Reader):
    """A reader that answers pings, or does not."""

    is_open = True

    def __init__(self, channel: QuietChannel, *, answers: bool = True) -> None:
        super().__init__(TEXT)
        self.channel = channel
        self.answers = answers
        self.unread = 0
        self.pings = 0
        self.closed: tuple[int, str] | None = None

    def write(self, data: bytes) -> None: ...

    def ping(self) -> bool:
        self.pings += 1
        return True

    def backlog(self) -> int:
        return self.unread

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)


class Wheel(Keepalive):
    """A keep-alive whose time passes when told."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(send_timeout_seconds=SEND_TIMEOUT_SECONDS, clock=lambda: self.now)

    def pass_seconds(self, seconds: float, *peers: Peer) -> None:
        for _ in range(int(seconds / TICK_SECONDS)):
            self.now += TICK_SECONDS
            self.tick()
            for peer in peers:
                if peer.answers:
                    peer.deadline = None


@pytest.fixture
def wheel() -> Wheel:
    return Wheel()


def joined(wheel: Wheel, peer: Peer) -> Peer:
    wheel.add(peer)
    return peer


def test_every_reader_is_pinged_once_in_25_seconds(wheel):
    peers = [joined(wheel, Peer(QuietChannel())) for _ in range(1_000)]
    wheel.pass_seconds(PING_SECONDS, *peers)
    assert {peer.pings for peer in peers} == {1}
    wheel.pass_seconds(PING_SECONDS, *peers)
    assert {peer.pings for peer in peers} == {2}


def test_pings_are_spread_evenly_however_the_readers_came(wheel):
    peers = [joined(wheel, Peer(QuietChannel())) for _ in range(10 * SLOTS)]
    for tick in range(1, SLOTS + 1):
        wheel.pass_seconds(TICK_SECONDS, *peers)
        assert sum(peer.pings for peer in peers) == 10 * tick


def test_who_answers_stays(wheel):
    peer = joined(wheel, Peer(QuietChannel()))
    wheel.pass_seconds(10 * PING_SECONDS, peer)
    assert peer.closed is None


def test_an_idle_reader_without_a_pong_is_dropped_after_20_seconds(wheel):
    peer = joined(wheel, Peer(QuietChannel(), answers=False))
    peer.pushed_at_ping = 0  # it has long had all there was
    wheel.pass_seconds(PING_SECONDS)
    pinged_at = wheel.now  # at the latest
    while peer.closed is None and wheel.now < 10 * PING_SECONDS:
        wheel.pass_seconds(TICK_SECONDS)
    assert peer.closed is not None
    assert wheel.now <= pinged_at + PONG_SECONDS
    assert "no pong" in peer.closed[1]


def test_a_busy_reader_s_pong_may_come_later_for_its_ping_stands_in_a_queue(wheel):
    peer = joined(wheel, Peer(QuietChannel(), answers=False))
    wheel.pass_seconds(PING_SECONDS + PONG_SECONDS)
    assert peer.closed is None
    wheel.pass_seconds(SEND_TIMEOUT_SECONDS + 2 * PING_SECONDS)
    assert peer.closed is not None


def test_who_has_left_is_pinged_no_more(wheel):
    peer = joined(wheel, Peer(QuietChannel()))
    wheel.remove(peer)
    wheel.pass_seconds(2 * PING_SECONDS)
    assert peer.pings == 0


def stuck(wheel: Wheel) -> Peer:
    peer = joined(wheel, Peer(QuietChannel(), answers=False))
    peer.is_paused, peer.unread = True, 1_000_000
    wheel.watch(peer)
    return peer


def test_who_reads_nothing_for_the_send_timeout_is_closed_with_1013(wheel):
    peer = stuck(wheel)
    wheel.pass_seconds(SEND_TIMEOUT_SECONDS - TICK_SECONDS)
    assert peer.closed is None
    wheel.pass_seconds(TICK_SECONDS)
    assert peer.closed is not None
    assert peer.closed[0] == 1013


def test_nobody_is_cut_off_for_being_slow(wheel):
    peer = stuck(wheel)
    for _ in range(20):
        wheel.pass_seconds(SEND_TIMEOUT_SECONDS - TICK_SECONDS)
        peer.unread -= 1
    assert peer.closed is None


def test_who_could_not_read_a_ping_is_not_pinged(wheel):
    peer = stuck(wheel)
    wheel.pass_seconds(PING_SECONDS)
    assert peer.pings == 0
