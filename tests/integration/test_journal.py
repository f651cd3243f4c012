"""The journal on a real Redis: positions, keys, windows, state."""

import asyncio
from itertools import pairwise

import msgspec
import pytest

from rsnotify.coordination import keys
from rsnotify.errors import Rejected, Trimmed, TryAgain
from rsnotify.journal.call import Appended
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.journal.witness import MARK_LENGTH
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import LOC_END, ChannelName, render_rows, spell_out
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from tests.support.hubs import submission

CHANNEL = ChannelName("a", "change")
FRAMEWORK = ChannelName("a", "framework")
SECOND = 1_000_000


@pytest.fixture
async def journal(client: Client) -> JournalStore:
    """A journal with one empty set."""
    await Sets(client).add("a", SetOptions())
    return JournalStore(client, window_changes=10_000)


async def positions(journal: JournalStore) -> list[Position]:
    return [at for at, _ in await journal.read(CHANNEL, await first(journal), count=100_000)]


async def first(journal: JournalStore) -> Position:
    (standing,) = await journal.standings([CHANNEL])
    assert standing is not None
    return standing.first


async def set_last(client: Client, position: int) -> None:
    """As if the set had been made, and last been published to, at that position."""
    then = dict.fromkeys(("first", "last", "head"), int(position))
    await client.hset(keys.record(CHANNEL), mapping=then)


async def redis_now(client: Client) -> Position:
    seconds, microseconds = await client.time()
    return Position(seconds * SECOND + microseconds)


async def walks_back(client: Client) -> int:
    """How often Redis was asked for what is in a stream, newest first."""
    return int((await client.info("commandstats")).get("cmdstat_xrevrange", {"calls": 0})["calls"])


@pytest.mark.parametrize(("before", "found", "walks"), [(1, [], 0), (0, ["first"], 1)])
async def test_redis_does_not_look_through_a_stream_that_is_all_newer(
    client, journal, before, found, walks
):
    interval = await journal.append(CHANNEL, submission("first"))
    await journal.append(CHANNEL, submission("second"))
    walked = await walks_back(client)
    rows, _ = await journal.read_back(CHANNEL, Position(interval.until - before), count=9)
    assert [xml.partition(b"</loc>")[0].rpartition(b"/")[2].decode() for _, xml in rows] == found
    assert await walks_back(client) - walked == walks


async def test_an_append_covers_the_interval_it_answers(journal):
    began = await first(journal)
    interval = await journal.append(CHANNEL, submission("1", "2"))
    rows = await journal.read(CHANNEL, interval.from_, count=10)
    assert interval.from_ == began
    assert rows[-1][0] == interval.until
    assert [b"example.com/1" in rows[0][1], b"example.com/2" in rows[1][1]] == [True, True]


async def test_consecutive_intervals_join(journal):
    one = await journal.append(CHANNEL, submission("1"))
    other = await journal.append(CHANNEL, submission("2"))
    assert other.from_ == one.until


async def test_positions_strictly_increase_under_concurrent_appends(journal):
    await asyncio.gather(*(journal.append(CHANNEL, submission(str(n), "b")) for n in range(200)))
    found = await positions(journal)
    assert len(found) == 400
    assert all(one < other for one, other in pairwise(found))


async def test_positions_strictly_increase_when_several_processes_append(journal, redis_url):
    others = [connect(redis_url) for _ in range(3)]
    journals = [journal, *(JournalStore(other, window_changes=10) for other in others)]
    await asyncio.gather(*(journals[n % 4].append(CHANNEL, submission(str(n))) for n in range(200)))
    for other in others:
        await other.aclose()
    found = await positions(journal)
    assert len(found) == len(set(found)) == 200


async def test_positions_go_on_when_the_clock_has_gone_back(journal, client):
    ahead = await redis_now(client) + 3600 * SECOND
    await set_last(client, ahead)
    interval = await journal.append(CHANNEL, submission("1", "2"))
    assert interval.interval == (ahead, ahead + 2)


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (-500_000, "last + 1"),  # less than a second behind: kept in order
        (-1_000_000, "last + 1"),
        (-1_000_001, "now"),
        (0, "last + 1"),
        (60_000_000, "own"),
        (7_200_000_000, "now"),  # in the future
    ],
)
async def test_a_sources_own_datetime_counts_within_its_rule(journal, client, own, expected):
    before = await redis_now(client)
    last = Position(before - 3600 * SECOND)
    await set_last(client, last)
    interval = await journal.append(CHANNEL, submission("1", datetime=str(Position(last + own))))
    if expected == "now":
        assert before < interval.until <= await redis_now(client)
    else:
        assert interval.until == {"last + 1": last + 1, "own": last + own}[expected]


async def test_a_history_of_whole_seconds_keeps_its_order(journal, client):
    noon = Position((await redis_now(client) // SECOND - 600) * SECOND)
    await set_last(client, noon - SECOND)
    interval = await journal.append(CHANNEL, submission("1", "2", "3", datetime=str(noon)))
    assert await positions_after(journal, interval.from_) == [noon, noon + 1, noon + 2]


async def positions_after(journal: JournalStore, after: Position) -> list[int]:
    return [int(at) for at, _ in await journal.read(CHANNEL, after, count=100)]


async def test_the_same_key_gets_the_same_answer_and_stores_nothing(journal):
    one = await journal.append(CHANNEL, submission("1", key="k"))
    again = await journal.append(CHANNEL, submission("1", key="k"))
    assert again.interval == one.interval
    assert (one.is_repeated, again.is_repeated) == (False, True)
    assert len(await positions(journal)) == 1


async def test_the_same_key_at_the_same_moment_stores_once(journal):
    answers = await asyncio.gather(
        *(journal.append(CHANNEL, submission("1", key="k")) for _ in range(50))
    )
    assert len({answer.interval for answer in answers}) == 1
    assert len(await positions(journal)) == 1


async def test_a_key_used_for_something_else_is_refused(journal):
    await journal.append(CHANNEL, submission("1", key="k"))
    other = msgspec.structs.replace(submission("2", key="k"), fingerprint="other")
    with pytest.raises(Rejected) as refused:
        await journal.append(CHANNEL, other)
    assert refused.value.status == 409


async def test_a_set_made_anew_remembers_no_key_of_the_old_one(journal, client):
    await journal.append(CHANNEL, submission("1", key="k"))
    await Sets(client).remove("a")
    await Sets(client).add("a", SetOptions())
    await journal.append(CHANNEL, submission("1", key="k"))
    assert len(await positions(journal)) == 1


async def test_a_set_that_is_none_refuses_and_harms_no_other(journal):
    refused, accepted = await asyncio.gather(
        journal.append(ChannelName("b", "change"), submission("1")),
        journal.append(CHANNEL, submission("1")),
        return_exceptions=True,
    )
    assert isinstance(refused, Rejected)
    assert isinstance(accepted, Appended)


async def test_a_removed_set_leaves_nothing_but_keys_that_expire(journal, client):
    await journal.append(CHANNEL, submission(*map(str, range(300))))
    await Sets(client).remove("a")
    left = [key async for key in client.scan_iter("rsnotify:{a}:*")]
    assert all([await client.ttl(key) > 0 for key in left])


async def test_scripts_forgotten_by_a_restarted_redis_are_loaded_again(journal, client):
    await journal.append(CHANNEL, submission("1"))
    await client.script_flush()
    await journal.append(CHANNEL, submission("2"))
    assert len(await positions(journal)) == 2


async def test_the_state_holds_the_last_fragment_of_every_resource_there_is(journal, client):
    await journal.append(CHANNEL, submission("1", "2", "3", "2"))
    last = await journal.append(CHANNEL, submission("3", change="deleted"))
    await journal.append(FRAMEWORK, submission("list"))
    state = await current_state(client)
    assert sorted(state) == [b"http://example.com/1", b"http://example.com/2"]
    assert state[b"http://example.com/2"].partition(LOC_END)[0].decode() == str(int(last.from_))


async def test_redis_keeps_the_short_form_and_xml_comes_out_of_it(journal, client):
    change = Change("http://example.com/1?a&b", "updated", hash="md5:" + "0" * 32, length=1)
    fragment = fragment_of(change)
    done = await journal.append(CHANNEL, Submission([fragment]))
    ((_, fields),) = await client.execute_command("XRANGE", keys.stream(CHANNEL), "-", "+")
    mark, short = fields
    assert (mark.decode(), short) == (done.mark, fragment.short)
    assert len(mark) == MARK_LENGTH
    state = await current_state(client)
    assert b"http://example.com/1?a&amp;b" in state
    rest = fragment.short[fragment.short.index(LOC_END) :]
    assert list(state.values()) == [str(int(done.until)).encode() + rest]
    assert await journal.read(CHANNEL, done.from_, count=9) == [(done.until, fragment.xml)]


async def test_what_a_development_version_has_stored_as_xml_is_read(journal, client):
    done = await journal.append(CHANNEL, submission("new"))
    xml = fragment_of(Change("http://example.com/old", "updated")).xml
    at = Position(done.until + 1)
    await client.xadd(keys.stream(CHANNEL), {"": xml}, at.stream_id)
    (_, new), old = await journal.read(CHANNEL, done.from_, count=9)
    assert (spell_out(new), old) == (new, (at, xml))


async def test_a_change_list_is_counted_as_its_xml(journal, client):
    done = await journal.append(CHANNEL, submission("1", "2"))
    rows = await journal.read(CHANNEL, done.from_, count=9)
    size = int(await client.hget(keys.record(CHANNEL), "window_bytes"))
    holes = 2 * len(rows)  # a byte each, counted beside what fills them
    assert size == len(render_rows(rows)) + holes


async def current_state(client: Client) -> dict[bytes, bytes]:
    shards = [await client.hgetall(keys.state("a", n)) for n in range(keys.STATE_SHARDS)]
    return {loc: value for shard in shards for loc, value in shard.items()}


async def test_a_change_undone_in_the_same_request_leaves_no_state(journal, client):
    made, gone = submission("1").fragments, submission("1", change="deleted").fragments
    await journal.append(CHANNEL, Submission([*made, *gone]))
    assert await current_state(client) == {}


async def test_a_cursor_before_the_journals_beginning_is_told(journal):
    with pytest.raises(Trimmed):
        await journal.read(CHANNEL, Position(await first(journal) - 1), count=10)


async def test_a_redis_that_is_away_means_try_again(tmp_path):
    away = connect(f"unix://{tmp_path}/none.sock")
    with pytest.raises(TryAgain):
        await JournalStore(away, window_changes=10).append(CHANNEL, submission("1"))
    await away.aclose()


async def test_appends_travel_together_while_one_is_on_its_way(journal, client):
    await client.config_resetstat()
    await asyncio.gather(*(journal.append(CHANNEL, submission(str(n))) for n in range(1_000)))
    calls = (await client.info("commandstats"))["cmdstat_evalsha"]["calls"]
    assert calls < 100
