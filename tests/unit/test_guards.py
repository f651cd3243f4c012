"""Limits on connections and readers: at the limit, one past it, and free again."""

import asyncio
from functools import partial
from typing import Any

import pytest

from rsnotify.channels.reader_limits import ReaderLimits
from rsnotify.errors import InvalidSettings, TooMany, TryAgain
from rsnotify.http.connection_limits import (
    LEAST_CONNECTIONS,
    REFUSED_AT_ONCE,
    SPARE_FILES,
    ConnectionLimits,
    LimitedCounts,
    allowed_total,
    check_enough,
)
from rsnotify.http.protocol import StartQueue
from rsnotify.http.sockets import address_of
from rsnotify.resourcesync.notification import ChannelName
from tests.unit.test_channel import Peer

ONE, TWO = ChannelName("one", "change"), ChannelName("two", "change")


def test_who_holds_nothing_any_more_is_forgotten():
    held = LimitedCounts[str](2)
    held.take("a")
    held.take("a")
    assert held.is_full("a")
    assert not held.is_full("b")
    held.give_back("a")
    assert not held.is_full("a")
    held.give_back("a")
    assert (len(held), [*held.items()]) == (0, [])


def test_nobody_gives_back_what_it_does_not_hold():
    held = LimitedCounts[str](2)
    held.take("a")
    with pytest.raises(KeyError):
        held.give_back("b")
    assert len(held) == 1


def test_a_channel_has_so_many_readers_and_one_more_when_one_leaves():
    limits = ReaderLimits(per_channel=2, per_address=10)
    first, refused = Peer(), Peer()
    limits.enter(first, "a", [ONE, TWO])
    limits.enter(Peer(), "b", [ONE])
    with pytest.raises(TryAgain, match="one/change has 2 readers"):
        limits.enter(refused, "c", [TWO, ONE])
    assert len(limits.addresses) == 2
    limits.leave(first, [ONE, TWO])
    limits.enter(refused, "c", [TWO, ONE])


def test_an_address_has_so_many_readers_and_others_have_theirs():
    limits = ReaderLimits(per_channel=10, per_address=1)
    limits.enter(Peer(), "a", [ONE])
    with pytest.raises(TooMany) as refused:
        limits.check("a", [TWO])
    assert (refused.value.status, refused.value.retry_after_seconds) == (429, 10)
    limits.check("b", [ONE])


def test_readers_are_counted_as_they_come_and_go_each_once():
    limits = ReaderLimits()

    def counts() -> tuple[int, dict[str, int]]:
        audiences = {audience.set_name: number for audience, number in limits.audiences.items()}
        return len(limits.addresses), audiences

    of_one, of_both, other = Peer(), Peer(), Peer()
    limits.enter(of_one, "a", [ONE])
    limits.enter(of_both, "a", [ONE, TWO])
    limits.enter(other, "b", [TWO])
    assert counts() == (3, {"one": 2, "two": 2})
    limits.leave(of_both, [ONE, TWO])
    limits.leave(of_both, [ONE, TWO])
    assert counts() == (2, {"one": 1, "two": 1})
    limits.enter(of_both, "b", [ONE, TWO])
    assert counts() == (3, {"one": 2, "two": 2})
    for each, channels in ((of_one, [ONE]), (of_both, [ONE, TWO]), (other, [TWO])):
        limits.leave(each, channels)
    assert counts() == (0, {})


def test_a_reader_that_was_refused_is_not_counted_and_leaves_nothing():
    limits = ReaderLimits(per_channel=1)
    limits.enter(Peer(), "a", [ONE])
    refused = Peer()
    with pytest.raises(TryAgain):
        limits.enter(refused, "b", [TWO, ONE])
    limits.leave(refused, [TWO, ONE])
    assert (len(limits.addresses), len(limits.audiences)) == (1, 1)


def connections(*, total: int = 10, per_address: int = 10, readers: int = 0) -> ConnectionLimits:
    def counted_as(host: str) -> str | None:
        return None if host == "proxy" else host

    return ConnectionLimits(total, per_address, counted_as, range(readers))


def test_one_connection_more_than_in_all_is_refused_and_readers_count():
    open_ = connections(total=3, readers=1)
    for number in range(2):
        assert open_.enter(number, "a") is None
    status, reason = open_.enter(2, "a") or (0, "")
    assert (status, "3 connections open" in reason) == (503, True)
    open_.leave(2)
    open_.leave(0)
    assert open_.enter(3, "a") is None


def test_one_connection_more_than_for_an_address_is_refused_but_not_of_a_trusted_proxy():
    open_ = connections(per_address=1)
    assert open_.enter(1, "a") is None
    assert (open_.enter(2, "a") or (0,))[0] == 429
    assert open_.enter(3, "b") is None
    assert open_.enter(4, "proxy") is None
    assert open_.enter(5, "proxy") is None


def test_far_too_many_are_not_even_told():
    open_ = connections(total=1, per_address=1_000_000)
    for number in range(REFUSED_AT_ONCE + 1):
        open_.enter(number, "a")
    assert not open_.is_flooded
    open_.enter(REFUSED_AT_ONCE + 1, "a")
    assert open_.is_flooded


@pytest.mark.parametrize(
    ("wanted", "files", "total"),
    [
        (1_000, -1, 1_000),
        (1_000, 1_000 + SPARE_FILES, 1_000),
        (1_000, 999 + SPARE_FILES, 999),
        (1_000, 10, 1),
    ],
)
def test_no_more_connections_are_taken_than_files_may_be_opened(wanted, files, total):
    assert allowed_total(wanted, files) == total


def test_a_hub_begins_only_where_a_hundred_connections_fit():
    check_enough(SPARE_FILES + LEAST_CONNECTIONS)
    check_enough(-1)  # no limit
    with pytest.raises(InvalidSettings, match="may open 611 files, and a hub needs 612 at least"):
        check_enough(SPARE_FILES + LEAST_CONNECTIONS - 1)


async def test_a_bug_in_what_one_peer_starts_stops_no_other():
    """What raised is not begun again, and the line goes on in the next turn."""
    queue, began = StartQueue(1), list[int]()

    def breaks() -> bool:
        raise LookupError

    def begins(number: int) -> bool:
        began.append(number)
        return True

    failures = list[object]()
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(context["exception"])
    )
    for start in (partial(begins, 0), breaks, partial(begins, 1), breaks, partial(begins, 2)):
        queue.start(None, start)
    for _ in range(9):
        await asyncio.sleep(0)
    assert began == [0, 1, 2]
    assert [type(each) for each in failures] == [LookupError] * 2


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        ("aaaa", "aaaa"),
        ("aaaab", "aabaa"),  # the first had nobody before it; then the addresses take turns
        ("aaabbc", "aabcab"),
        ("aabab", "aabab"),
        ("abab", "abab"),
    ],
)
async def test_addresses_take_turns_whatever_one_of_them_asks(asked, order):
    queue, began = StartQueue(1), list[str]()
    for address in asked:
        queue.start(address, lambda address=address: not began.append(address))
    for _ in asked:
        await asyncio.sleep(0)
    assert "".join(began) == order


async def test_an_address_whose_peers_have_left_makes_nobody_wait():
    queue, began = StartQueue(1), list[str]()
    for address in "gone" * 20:
        queue.start(address, lambda: False)
    queue.start("here", lambda: not began.append("here"))
    await asyncio.sleep(0)
    assert began == ["here"]


class End(asyncio.Transport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("::1", 8_080, 0, 0), "sockname": "/run/hub"}.get(name, default)


def test_an_address_has_two_members_as_asgi_says():
    assert address_of(End(), "peername") == ("::1", 8_080)
    assert address_of(End(), "sockname") is None
