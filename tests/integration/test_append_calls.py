"""A call of append.lua is known again, whatever happens between its repetitions."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from redis.exceptions import ResponseError

from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet, RedisRefuses, Rejected, SetFull
from rsnotify.journal.appends import CERTAIN_SECONDS, UNKNOWN, WRITERS
from rsnotify.journal.call import (
    CALL_SECONDS,
    NO_WINDOW,
    Append,
    AppendCall,
    Appended,
    call_keys,
    mark_of_call,
)
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.rows import mark_of
from rsnotify.journal.submission import Submission
from rsnotify.journal.witness import Witness
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.support.hubs import submission

CHANNEL = ChannelName("a", "change")
WRITER = "process-1"
REMEMBERED = "rsnotify:{a}:change:key:"


@pytest.fixture(autouse=True)
async def of_a_set(client: Client) -> None:
    await Sets(client).add("a", SetOptions())


async def called(
    client: Client,
    submissions: Sequence[Submission],
    number: int = 1,
    writer: str = WRITER,
    max_bytes: int = 0,
) -> list[Any]:
    """What each of them is told."""
    loop, witness = asyncio.get_running_loop(), Witness(Position(0))
    appends = [
        Append(
            *(CHANNEL, each, len(each.fragments[0].xml), max_bytes, witness, 0.0),
            loop.create_future(),
        )
        for each in submissions
    ]
    call = AppendCall(CHANNEL, appends, "process", writer, number)
    (reply,) = await client.once([call.command(NO_WINDOW, keys.BELL, Position(0))])
    call.resolve(reply, UNKNOWN, is_alone=False)
    return await asyncio.gather(*(each.answer for each in appends), return_exceptions=True)


async def stored(client: Client) -> int:
    return int(await client.xlen(keys.stream(CHANNEL)))


MIXED = (
    submission("1", "2"),
    submission("3", key="k"),
    submission("4"),
    submission("5", datetime="2020-01-01T00:00:00Z"),  # long past, so it gets another position
    submission("6", key="l"),
    submission("7"),
)


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize(
    "submissions", [MIXED, MIXED[:1], MIXED[1:2], MIXED[3:]], ids=["all", "own", "key", "some"]
)
async def test_a_call_that_is_repeated_is_answered_as_before_and_stores_nothing(
    client, submissions, forgotten
):
    first = await called(client, submissions)
    count = await stored(client)
    assert count == sum(len(each.fragments) for each in submissions)
    for _ in range(2):
        if forgotten:
            await client.script_flush()
        again = await called(client, submissions)
        assert [each.interval for each in again] == [each.interval for each in first]
        assert [(each.is_repeated) for each in (*first, *again)] == [
            *[False] * len(first),
            *[True] * len(first),
        ]
        assert await stored(client) == count


async def test_the_next_call_is_another_one(client):
    for number in range(1, 4):
        (appended,) = await called(client, [submission("1")], number)
        assert not appended.is_repeated
        assert await stored(client) == number


async def test_writers_do_not_know_of_each_other(client):
    for writer in ("process-1", "process-2", "other-1"):
        (appended,) = await called(client, [submission("1")], writer=writer)
        assert not appended.is_repeated
    assert await stored(client) == 3


async def test_a_call_that_comes_after_the_next_one_stores_nothing(client):
    """Redis may be stopped, and read what was written to it long ago over several connections."""
    await called(client, [submission("1")], 1)
    await called(client, [submission("2")], 2)
    for submissions in ([submission("1")], [submission("1"), submission("3", key="k")]):
        late = await called(client, submissions, 1)
        assert all(isinstance(each, ResponseError) for each in late)
        assert await stored(client) == 2
    assert not await client.exists(f"{REMEMBERED}k")


async def test_a_key_that_was_used_otherwise_is_refused_alone(client):
    await called(client, [submission("1", key="k")], 1)
    other = replace(submission("2", key="k"), fingerprint="other")
    for _ in range(2):
        one, refused, two = await called(client, [submission("3"), other, submission("4")], 2)
        assert isinstance(refused, Rejected)
        assert isinstance(one, Appended)
        assert one.until == two.from_
        assert await stored(client) == 3


async def test_what_is_remembered_of_calls_does_not_grow(client):
    journal = JournalStore(client, window_changes=10_000)
    for _ in range(50):
        await journal.append(CHANNEL, submission("1"))
    found = await remembered(client)
    assert 1 <= len(found) <= WRITERS
    for key in found:
        assert CERTAIN_SECONDS * 10 < await client.ttl(key) <= CALL_SECONDS


async def remembered(client: Client) -> list[bytes]:
    return [key async for key in client.scan_iter(f"{REMEMBERED}*")]


async def test_many_at_the_same_time_are_remembered_together(client):
    journal = JournalStore(client, window_changes=10_000)
    answers = await asyncio.gather(
        *(journal.append(CHANNEL, submission(str(number))) for number in range(500))
    )
    assert len({each.until for each in answers}) == await stored(client) == 500
    assert len(await remembered(client)) <= WRITERS


async def test_a_key_of_a_call_that_is_damaged_is_named_and_nothing_stored(client):
    await called(client, [submission("1")])
    (key,) = await remembered(client)
    await client.delete(key)
    await client.sadd(key, "x")
    (error,) = await called(client, [submission("1")])
    assert isinstance(error, ResponseError)
    assert "WRONGTYPE" in str(error)
    assert await stored(client) == 1


@pytest.mark.parametrize("key", [None, "k"])
async def test_what_may_not_be_read_is_no_damage(own_redis, key):
    """The user has a right to the keys that the script is given, and not to what begins so."""
    async with connect(own_redis.url) as admin:
        await Sets(admin).add("a", SetOptions())
        readable = [f"~{name}" for name in (*call_keys(CHANNEL), "rsnotify:{a}:state:*")]
        rights = ("on", "nopass", "+@all", *readable)
        await admin.execute_command("ACL", "SETUSER", "narrow", *rights)
        async with connect(f"{own_redis.url}?username=narrow&password=x") as client:
            (error,) = await called(client, [submission("1", key=key)])
        assert isinstance(error, RedisRefuses)
        assert "NOPERM" in error.detail
        assert await stored(admin) == 0


async def test_all_that_a_call_stores_bears_its_mark_and_that_of_no_other(client):
    await called(client, MIXED, 1)
    await called(client, [submission("8")], 2)
    entries = await client.execute_command("XRANGE", keys.stream(CHANNEL), "-", "+")
    marks = [mark_of(fields[0]) for _, fields in entries]
    first, second = (mark_of_call("process", number) for number in (1, 2))
    assert marks == [*[first] * (len(marks) - 1), second]
    assert len({first, second, mark_of_call("other", 1)}) == 3


async def test_who_is_answered_again_learns_the_mark_of_the_row_that_was_stored_first(client):
    (first,) = await called(client, [submission("1", "2", key="k")], 1)
    (again,) = await called(client, [submission("1", "2", key="k")], 2)
    assert again.is_repeated
    assert again.mark == first.mark == mark_of_call("process", 1)


async def test_a_loss_is_said_once_though_the_call_that_finds_it_is_repeated(client):
    """The gap is there when it comes again, and what it has stored is behind that."""
    known = Witness(Position(2**52))  # somebody was given far more than the journal has
    loop = asyncio.get_running_loop()
    found = []
    for _ in range(2):
        request = submission("1")
        append = Append(CHANNEL, request, 1, 0, Witness(known.given), 0.0, loop.create_future())
        call = AppendCall(CHANNEL, [append], "process", WRITER, 1)
        (reply,) = await client.once([call.command(NO_WINDOW, keys.BELL, Position(0))])
        call.resolve(reply, UNKNOWN, is_alone=True)
        found.append(((await append.answer).interval, call.gap))
    (interval, gap), again = found
    assert gap == interval.from_ == known.given + 1
    assert again == (interval, 0)
    assert await stored(client) == 1


async def test_what_was_refused_for_want_of_room_is_refused_again_in_a_repetition(client):
    """Its caller has been told, or will be; only a new call of it is judged anew."""
    large = submission(*(f"{number}" for number in range(100)))
    call = [submission("a"), large, submission("b"), submission("c", key="k")]
    before = await called(client, call, max_bytes=2000)
    assert [type(each) for each in before] == [Appended, SetFull, Appended, Appended]
    again = await called(client, call, max_bytes=10**6)
    assert [getattr(each, "interval", None) for each in again] == [
        getattr(each, "interval", None) for each in before
    ]
    assert await stored(client) == 3
    assert isinstance((await called(client, [large], 2, max_bytes=10**6))[0], Appended)


async def test_a_call_of_which_all_was_refused_leaves_nothing(client):
    names = await client.keys()
    (refused,) = await called(client, [submission("a")], max_bytes=1)
    assert isinstance(refused, SetFull)
    assert sorted(await client.keys()) == sorted(names)


async def test_the_bell_names_each_change_by_the_call_that_stored_it(client):
    """Else whoever has heard of it would miss it, and say that it is lost."""
    await called(client, [submission("1", key="k")])
    appends = [
        Append(CHANNEL, each, 1, 0, Witness(Position(0)), 0.0, asyncio.Future())
        for each in (submission("1", key="k"),)
    ]
    call = AppendCall(CHANNEL, appends, "process", WRITER, 2)
    (reply,) = await client.once([call.command(NO_WINDOW, "", Position(0))])
    _, (field, _) = (await client.xrange(keys.stream(CHANNEL)))[-1]
    first = mark_of_call("process", 1)
    assert mark_of(field) == first
    assert call.message(reply) == f"a/change process:{first} {reply[0][0][1]}"
    assert call.message(NoSuchSet("a")) is None
    assert call.message([[[]], 0, 0]) is None, "its key was used otherwise"
    assert call.message([[[0]], 0, -1]) is None, "its set is full"
    assert call.message([[[7, 7, 0, [0]]], 0, 0]) is None, "another has stored 7"
    assert call.message([[], 7, 0]) == f"a/change process:{call.mark} 7", "a gap"
