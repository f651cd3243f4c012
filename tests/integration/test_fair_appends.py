"""Who publishes much does not keep others waiting, nor fills the room in which all wait."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from rsnotify.errors import TryAgain
from rsnotify.journal import appends
from rsnotify.journal.appends import AppendLimits
from rsnotify.journal.call import Appended
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission
from rsnotify.redis_client import Client
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.support.hubs import submission
from tests.support.running import PATIENT_SECONDS

MANY = [str(number) for number in range(1_000)]  # changes of a large request


@pytest.fixture
async def with_room(client: Client) -> Callable[[int], JournalStore]:
    """A journal for which so many bytes may wait, on a busy machine, too."""
    for name in ("calm", "wild", *(f"wild{number}" for number in range(5))):
        await Sets(client).add(name, SetOptions())

    def made(size: int) -> JournalStore:
        limits = AppendLimits(PATIENT_SECONDS, PATIENT_SECONDS, waiting_bytes=size)
        return JournalStore(client, window_changes=100_000, append_limits=limits)

    return made


@pytest.fixture
def journal(with_room: Callable[[int], JournalStore]) -> JournalStore:
    return with_room(appends.WAITING_BYTES)


async def answered(
    journal: JournalStore, requests: Sequence[tuple[str, Sequence[str]]]
) -> list[str]:
    """The sets of requests that come at once, in the order in which they are answered; with a `!`
    where one is told to come again."""
    order: list[str] = []

    async def append(name: str, locs: Sequence[str]) -> None:
        try:
            await journal.appends.append(ChannelName(name, "change"), submission(*locs))
            order.append(name)
        except TryAgain:
            order.append(f"{name}!")

    await asyncio.gather(*(append(*each) for each in requests))
    return order


async def test_a_request_of_one_set_waits_for_one_of_each_other_set_and_not_for_all(journal):
    wild = [("wild", MANY)] * 20
    order = await answered(journal, [*wild, ("calm", ["1"]), *wild])
    assert len(order) == 41
    stored = [name for name in order if not name.endswith("!")]  # a slow machine stores not all
    assert stored.index("calm") < appends.WRITERS * appends.ROUND_CHANGES // len(MANY)


@pytest.mark.parametrize(
    ("changes", "type_", "in_two_rounds"),
    [(appends.ROUND_CHANGES // 2, "a/b", 4), (180, "a/" + "b" * 30_000, 2)],
)
async def test_a_request_waits_for_the_large_ones_that_redis_has_and_for_no_further_one(
    journal, changes, type_, in_two_rounds
):
    large = submission(*map(str, range(changes)), type=type_)

    def append(name: str, changes: Submission) -> asyncio.Task[Appended]:
        return asyncio.create_task(journal.appends.append(ChannelName(name, "change"), changes))

    wild = [append("wild", large) for _ in range(in_two_rounds + 3)]
    while journal.appends.writing < appends.WRITERS:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # both have sent a round
    late = await append("calm", submission("1"))
    stored = sorted([each.until for each in await asyncio.gather(*wild)])
    assert late.until < stored[in_two_rounds]


async def test_the_requests_of_each_set_in_a_round_are_stored_in_the_order_in_which_they_came(
    journal,
):
    channels = [ChannelName(name, "change") for name in ("wild", "calm")]
    stored = await asyncio.gather(
        *(
            journal.appends.append(channel, submission(*MANY[:number]))
            for number in (90, 5, 700, 3, 80)
            for channel in channels
        )
    )
    for each in (stored[::2], stored[1::2]):
        assert sorted(each, key=lambda appended: appended.from_) == each


SIZE = sum(len(fragment.xml) for fragment in submission(*MANY).fragments)


@pytest.mark.parametrize(("waiting", "is_refused"), [(4, False), (5, True)])
async def test_the_set_that_fills_the_room_is_refused_and_no_other(with_room, waiting, is_refused):
    journal = with_room(4 * SIZE - 1)
    order = await answered(journal, [*[("wild", MANY)] * waiting, ("calm", MANY)])
    assert order.count("wild!") == is_refused
    assert "calm" in order


async def test_several_sets_do_not_fill_the_room_together(with_room):
    """Whoever may publish to many has no more than a share for each."""
    wild = [(f"wild{number % 5}", MANY) for number in range(40)]
    order = await answered(with_room(10 * SIZE - 1), [*wild, ("calm", MANY)])
    assert "calm" in order
    assert sum(name.startswith("wild") and "!" not in name for name in order) <= 10 + 5


async def test_all_sets_together_have_twice_the_room_and_no_more(with_room):
    names = ["wild", *(f"wild{number}" for number in range(5))]
    order = await answered(with_room(2 * SIZE - 1), [(name, MANY) for name in names])
    assert sum("!" in name for name in order) == 2
