"""Redis has lost changes that somebody had: everybody who may have had them is told, at once, and
nothing that is left moves."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from rsnotify.channels.channel import ChannelReaders
from rsnotify.channels.keepalive import Keepalive
from rsnotify.coordination import keys
from rsnotify.coordination.clock import redis_now
from rsnotify.documents.documents import change_list
from rsnotify.errors import HistoryDeleted, NoSuchSet, TooFewReplicas, Trimmed, TryAgain
from rsnotify.journal.journal_store import UNMARKED, JournalStore, Standing
from rsnotify.journal.submission import Submission
from rsnotify.journal.window import following_from, stretch_after
from rsnotify.journal.windows import Windows
from rsnotify.journal.witness import KnownChange, Witness
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client, Replicas, connect
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.resourcesync.xml_reader import parse_document
from tests.support.faults import Losing, OwnRedis, SlowWay
from tests.support.hubs import hub_on, started, submission
from tests.support.pulling import CHANGES, SET, Pulling
from tests.support.running import until
from tests.unit.test_channel import PLAIN, Peer, settled

CHANNEL = ChannelName("a", "change")
FRAMEWORK = ChannelName("a", "framework")
MICROSECOND = 1


@pytest.fixture
async def hub(client: Client) -> Journals:
    hub = hub_on(client)
    await hub.add_set("a")
    await hub.start()
    return hub


@pytest.fixture
def losing(client: Client) -> Losing:
    return Losing(client, "rsnotify:{a}*")


@pytest.fixture
def journal(client: Client) -> JournalStore:
    """Of a process that knows nothing."""
    return JournalStore(client, window_changes=10_000)


async def stored(client: Client, channel: ChannelName = CHANNEL) -> list[tuple[Position, str]]:
    """All changes that the stream has."""
    found = []
    for stream_id, fields in await client.execute_command("XRANGE", keys.stream(channel), "-", "+"):
        milliseconds, _, microseconds = stream_id.partition(b"-")
        at = Position(int(milliseconds) * 1000 + int(microseconds))
        found.append((at, fields[1].split(b"\2")[0].rpartition(b"/")[2].decode()))
    return found


async def names(client: Client, channel: ChannelName = CHANNEL) -> list[str]:
    return [name for _, name in await stored(client, channel)]


async def gaps(client: Client, channel: ChannelName = CHANNEL) -> list[Position]:
    """Where each gap of the journal ends."""
    found = await client.hget(keys.record(channel), "gaps")
    return [Position(int(each)) for each in (found or b"").split()]


class Readers:
    """Those who read a channel from one process."""

    def __init__(self, hub: Journals, channel: ChannelName = CHANNEL) -> None:
        self.feed = hub.feed(channel)
        self._readers = ChannelReaders(hub, self.feed, Keepalive(send_timeout_seconds=60))

    def join(self, cursor: Position | None = None, room: int = 1_000_000) -> Peer:
        """One who has all until there, or the head."""
        peer = Peer(PLAIN, room=room)
        self._readers.join(peer, self.feed.note_head_given() if cursor is None else cursor)
        return peer

    async def settle(self) -> None:
        await settled(self._readers)


def told(peer: Peer) -> list[str]:
    parts = b"".join(peer.taken).split(b"<loc>http://example.com/")[1:]
    return [each.split(b"<")[0].decode() for each in parts]


async def rings(hub: Journals, channel: ChannelName = CHANNEL) -> None:
    """The bell of another process says where the journal ends; nobody has checked anything."""
    newest = (await hub.reading.standing(channel)).newest
    hub.following.hear(f"{channel} another:{newest.mark} {int(newest.position)}")
    await hub.following.read_new()


# --- what is left ---------------------------------------------------------------------------------


async def test_what_is_left_stays_where_it_is_and_a_gap_comes_behind_it(hub, client, losing):
    await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
    stranger = await started(client)
    await stranger.publish(CHANNEL, submission("new"))
    left = await stored(client)
    after = await hub.publish(CHANNEL, submission("after"))
    assert [name for _, name in left] == ["kept", "new"]
    assert await stored(client) == [*left, (after.until, "after")]
    assert await gaps(client) == [after.from_]
    assert left[-1][0] < after.from_ < after.until


@pytest.mark.parametrize("appends", ["this process", "another one before it"])
async def test_a_stream_that_is_gone_is_missed_though_its_record_names_its_newest(
    hub, client, appends
):
    await hub.publish(CHANNEL, submission("lost"))
    await client.delete(keys.stream(CHANNEL))
    if appends != "this process":
        await (await started(client)).publish(CHANNEL, submission("new"))
    after = await hub.publish(CHANNEL, submission("after"))
    assert await gaps(client) == [after.from_]


async def test_a_gap_is_left_although_nothing_is_published(hub, client, losing):
    async with losing:
        lost = await hub.publish(CHANNEL, submission("lost"))
    await hub.start()  # as the follow loop does every second
    (gap,) = await gaps(client)
    assert gap > lost.until
    assert await names(client) == []
    for _ in range(3):
        await hub.start()
    assert await gaps(client) == [gap], "it is said once"


@pytest.mark.parametrize("trimmed_at", ["before", "at"])
async def test_a_gap_is_forgotten_once_the_stream_begins_behind_it(hub, client, trimmed_at):
    async with Losing(client):
        await hub.publish(FRAMEWORK, submission("lost"))
    await hub.start()
    (former,) = await gaps(client, FRAMEWORK)
    await hub.publish(FRAMEWORK, submission("kept"))
    begin = former if trimmed_at == "at" else Position(former - 1)
    await Windows(client).trim_framework("a", begin)
    async with Losing(client):
        await hub.publish(FRAMEWORK, submission("lost again"))
    await hub.start()
    *kept, newest = await gaps(client, FRAMEWORK)
    assert kept == ([] if trimmed_at == "at" else [former])
    assert newest > former
    with pytest.raises(Trimmed):
        await hub.history.read(FRAMEWORK, Position(former - 1), until=newest, count=9)


async def test_nothing_is_said_where_nothing_is_lost(hub, client):
    for name in ("1", "2"):
        await hub.publish(CHANNEL, submission(name))
    async with Losing(client):  # it is another Redis, which has all
        pass
    await hub.start()
    await hub.publish(CHANNEL, submission("3"))
    assert (await names(client), await gaps(client)) == (["1", "2", "3"], [])


async def test_a_lost_deletion_is_lost_and_said(hub, client, losing):
    await hub.publish(CHANNEL, submission("1"))
    async with losing:
        await hub.publish(CHANNEL, submission("1", change="deleted"))
    await hub.publish(CHANNEL, submission("2"))
    assert await names(client) == ["1", "2"]
    assert len(await gaps(client)) == 1
    assert await state(client) == {"1", "2"}


async def state(client: Client) -> set[str]:
    """The resources that the set has now."""
    found = set()
    for shard in range(keys.STATE_SHARDS):
        for loc in await client.hkeys(keys.state("a", shard)):
            found.add(loc.rpartition(b"/")[2].decode())
    return found


async def test_no_position_comes_again_though_the_clock_is_behind(hub, client, losing):
    """The gap ends behind all that was given, also where the clock of Redis is not yet there."""
    ahead = await redis_now(client) + 10_000_000
    async with losing:
        await client.hset(keys.record(CHANNEL), "last", ahead)
        lost = await hub.publish(CHANNEL, submission("lost"))
        assert lost.until > ahead
    after = await hub.publish(CHANNEL, submission("next"))
    assert await gaps(client) == [lost.until + MICROSECOND] == [after.from_]
    assert await names(client) == ["next"]


# --- who is told ----------------------------------------------------------------------------------


@pytest.fixture
async def gap(hub, client, losing) -> tuple[Position, Position]:
    """Between `kept` and the first change `after`, changes were lost."""
    kept = await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        for number in range(3):
            await hub.publish(CHANNEL, submission(f"lost-{number}"))
    after = await hub.publish(CHANNEL, submission("after"))
    await hub.start()
    return kept.until, after.from_


async def test_a_reader_from_before_a_loss_gets_what_is_left_and_is_then_told(hub, gap):
    kept, begins = gap
    feed = hub.feed(CHANNEL)
    found = await hub.reading.after(feed, Position(kept - 1))
    assert (found.until, found.count) == (kept, 1)
    for cursor in (kept, kept + 1, begins - 1):
        with pytest.raises(HistoryDeleted) as told:
            await hub.reading.after(feed, Position(cursor))
        assert told.value.begins == begins
    assert (await hub.reading.after(feed, begins)).count == 1


async def test_what_is_left_before_a_loss_comes_first_though_it_is_packed(client):
    async with Pulling(client) as pulling:
        kept = await pulling.update("kept")
        async with Losing(client, f"rsnotify:{{{SET}}}*"):
            await pulling.update("lost")
        begins = (await pulling.update("after")).from_
        await pulling.keep_windows()
        await pulling.let_go_of_all()
        feed, reading = pulling.hub.feed(CHANGES), pulling.hub.reading
        found = await reading.after(feed, kept.from_)
        assert found is not None
        assert (found.until, found.count) == (kept.until, 1)
        with pytest.raises(HistoryDeleted) as told:
            await reading.after(feed, kept.until)
        assert told.value.begins == begins


async def test_a_loss_in_damaged_data_does_not_keep_others_from_being_read(hub, client, losing):
    await hub.add_set("b")
    other = ChannelName("b", "change")
    readers = Readers(hub), Readers(hub, other)
    _, peer = [each.join() for each in readers]
    async with losing:
        lost = await hub.publish(CHANNEL, submission("lost"))
    await client.set(keys.windows(CHANNEL), "damaged")
    stranger = await started(client)
    await stranger.publish(other, submission("new"))
    hub.following.hear(f"{CHANNEL} another:abcdef {int(lost.until) + 9}")
    await rings(hub, other)
    await readers[1].settle()
    assert told(peer) == ["new"]


async def test_change_lists_do_not_join_where_changes_are_lost(client, gap):
    kept, begins = gap
    span = await Windows(client).span("a")
    (closed,) = span.windows
    assert (closed.until, closed.changes) == (kept, 1)
    assert (span.record.window_from, span.record.window_count) == (begins, 1)
    assert stretch_after(Position(kept - 1), span).until == kept
    assert following_from(await Windows(client).span("a", after=kept)) == begins


async def test_every_reader_of_every_process_is_told_at_once(hub, client, losing):
    """Whoever had what is lost, who was at its head, and who was behind; and who comes later."""
    other = await started(client)
    begin = hub.feed(CHANNEL).tail.head
    here, there = Readers(hub), Readers(other)
    early = [here.join(), there.join()]
    await hub.publish(CHANNEL, submission("kept"))
    await rings(other)
    behind = [here.join(begin, room=1), there.join(begin, room=1)]
    for each in (here, there):
        await each.settle()
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
        await rings(other)
    await hub.publish(CHANNEL, submission("after"))
    assert [peer.closed for peer in early] == [None, None]
    await hub.following.read_new()
    await rings(other)
    for each in (here, there):
        await each.settle()
    assert [(told(peer), peer.closed) for peer in early] == [(["kept", "lost"], 4410)] * 2
    for peer in behind:
        peer.drain(100)
    for each in (here, there):
        await each.settle()
    assert [(told(peer), peer.closed) for peer in behind] == [(["kept"], 4410)] * 2
    late = [here.join(begin), there.join(begin)]
    new = [here.join(), there.join()]
    for each in (here, there):
        await each.settle()
    assert [(told(peer), peer.closed) for peer in late] == [(["kept"], 4410)] * 2
    assert [(told(peer), peer.closed) for peer in new] == [([], None)] * 2


async def test_a_repeated_append_that_finds_a_loss_tells_the_readers_of_its_hub(
    hub, client, losing
):
    """Nobody else tells this process: its own message of the bell is for the others."""
    known = submission("1", key="k")
    await hub.publish(CHANNEL, known)
    readers = Readers(hub)
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
        peer = readers.join()
    await hub.publish(CHANNEL, known)
    (gap,) = await gaps(client)
    assert hub.feed(CHANNEL).known_head == gap, "it is to be read"
    await hub.following.read_new()
    await readers.settle()
    assert peer.closed == 4410


async def test_a_process_that_follows_finds_the_loss_before_it_goes_on(hub, client, losing):
    """It hears of a change that a process has appended that knew nothing: its own readers get that,
    since it is before the gap, and are told."""
    readers = Readers(hub)
    peer = readers.join()
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
    await JournalStore(client, window_changes=10_000).append(CHANNEL, submission("new"))
    await rings(hub)
    await readers.settle()
    assert (told(peer), peer.closed) == (["lost", "new"], 4410)
    assert await names(client) == ["new"]
    ((at, _),) = await stored(client)
    (gap,) = await gaps(client)
    assert gap > at


async def test_a_loss_that_only_a_reader_of_another_process_had_is_said_by_that_one(
    hub, client, losing
):
    """Whoever has appended it is gone."""
    readers = Readers(hub)
    peer = readers.join()
    async with losing:
        await JournalStore(client, window_changes=10_000).append(CHANNEL, submission("of the dead"))
        await rings(hub)
        assert len(told(peer)) == 1
    await hub.start()
    await readers.settle()
    assert peer.closed == 4410
    assert len(await gaps(client)) == 1


async def test_what_nobody_was_given_is_lost_in_silence(hub, client, losing):
    """A message is no evidence: nobody has read what it announced, and its publisher is gone."""
    readers = Readers(hub)
    peer = readers.join()
    async with losing:
        await JournalStore(client, window_changes=10_000).append(CHANNEL, submission("lost"))
        newest = (await hub.reading.standing(CHANNEL)).newest
    hub.following.hear(f"{CHANNEL} another:{newest.mark} {int(newest.position)}")
    await hub.following.read_new()
    await hub.start()
    assert await gaps(client) == []
    await hub.publish(CHANNEL, submission("next"))
    await hub.following.read_new()
    assert (told(peer), peer.closed) == (["next"], None)


async def test_processes_that_find_the_same_loss_leave_one_gap(hub, client, losing):
    other = await started(client)
    hubs = (hub, other)
    readers = [Readers(each) for each in hubs]
    peers = [each.join() for each in readers]
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
        await rings(other)
        await other.publish(CHANNEL, submission("lost too"))
        await rings(hub)
    await asyncio.gather(*(each.publish(CHANNEL, submission("next")) for each in hubs))
    for each in hubs:
        await each.start()
        await rings(each)
        await each.start()
    for each in readers:
        await each.settle()
    assert len(await gaps(client)) == 1
    assert [peer.closed for peer in peers] == [4410, 4410]
    assert await names(client) == ["next", "next"]


async def test_who_knows_more_than_the_first_gap_says_leaves_another(hub, client, losing, journal):
    """The clock of Redis is behind: the gap of one ends before what the other has given."""
    other = await started(client)
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
        ahead = await redis_now(client) + 10_000_000
        await client.hset(keys.record(CHANNEL), "last", ahead)
        lost = await other.publish(CHANNEL, submission("far ahead"))
    await hub.start()
    (first,) = await gaps(client)
    assert first < lost.until
    await other.start()
    assert await gaps(client) == [first, lost.until + MICROSECOND]


# --- what a reading had begun ---------------------------------------------------------------------


class HeldUpReading:
    """Reads from the journal what is lost then, and is held up before anybody gets it."""

    def __init__(self, hub: Journals, monkeypatch: pytest.MonkeyPatch) -> None:
        self.feed = hub.feed(CHANNEL)
        self.begin = self.feed.tail.head
        self.goes_on = asyncio.Event()
        self._hub, self._has_read = hub, asyncio.Event()
        self._check_sets = hub.checking.check_changed_sets
        monkeypatch.setattr(hub.reading, "_check_sets", self._hold_up)

    async def of_what_is_lost(self, read):
        await self._hub.publish(CHANNEL, submission("lost"))
        await self._hub.start()
        reading = asyncio.create_task(read(self.feed, self.begin))
        await self._has_read.wait()
        return reading

    async def _hold_up(self) -> None:
        self._has_read.set()
        await self.goes_on.wait()
        await self._check_sets()


@pytest.mark.parametrize("way", ["after", "batch_after"])
async def test_what_was_read_before_a_gap_is_kept_and_joined_with_nothing_behind_it(
    hub, client, losing, monkeypatch, way
):
    held_up = HeldUpReading(hub, monkeypatch)
    feed = held_up.feed
    async with losing:
        reading = await held_up.of_what_is_lost(getattr(hub.reading, way))
    after = await hub.publish(CHANNEL, submission("after"))
    await hub.start()
    held_up.goes_on.set()
    found = await reading
    assert (found.from_, found.count) == (held_up.begin, 1)
    assert found.until < after.from_
    with pytest.raises(HistoryDeleted):
        await hub.reading.after(feed, held_up.begin)
    with pytest.raises(HistoryDeleted):
        await hub.reading.after(feed, found.until)


# --- evidence -------------------------------------------------------------------------------------


async def looked(journal: JournalStore, given: int, *known: tuple[int, str]) -> Position:
    """Where the newest gap ends when somebody who knows this has looked."""
    witness = Witness(Position(given))
    witness.changes = tuple(KnownChange(Position(at), mark) for at, mark in known)
    return await journal.look(CHANNEL, witness)


@pytest.mark.parametrize(("more", "is_lost"), [(-1, False), (0, False), (1, True)])
async def test_what_was_given_beyond_the_end_is_lost(hub, client, journal, more, is_lost):
    last = (await hub.publish(CHANNEL, submission("1"))).until
    gap = await looked(journal, last + more)
    assert (gap > last + more) is is_lost
    assert await gaps(client) == ([gap] if is_lost else [])


async def test_a_change_is_known_by_who_stored_it(hub, client, journal):
    """Another one may be stored where it was."""
    stored = await journal.append(CHANNEL, submission("1"))
    assert await looked(journal, stored.until, (stored.until, stored.mark)) == 0
    assert await looked(journal, stored.until, (stored.until, UNMARKED)) > stored.until
    assert len(await gaps(client)) == 1


@pytest.mark.parametrize(("lost", "is_lost"), [(0, True), (1, True), (None, False)])
async def test_of_two_changes_that_are_known_each_is_looked_for(journal, hub, lost, is_lost):
    """The older one may be lost, and the newer one there: it was stored since."""
    both = [await journal.append(CHANNEL, submission(name)) for name in ("1", "2")]
    known = [(int(each.until), each.mark) for each in both]
    if lost is not None:
        known[lost] = known[lost][0] - MICROSECOND, known[lost][1]
    gap = await looked(journal, both[1].until, *known)
    assert (gap > both[1].until) is is_lost


@pytest.mark.parametrize(("more", "is_lost"), [(-1, False), (0, False), (1, True)])
async def test_what_the_stream_has_let_go_of_is_not_looked_for(hub, client, journal, more, is_lost):
    """It is packed, or nobody keeps it any more."""
    first = (await hub.publish(CHANNEL, submission("1"))).until
    last = (await hub.publish(CHANNEL, submission("2"))).until
    await client.hset(keys.record(CHANNEL), "first", int(first))
    await client.execute_command("XTRIM", keys.stream(CHANNEL), "MINID", last.stream_id)
    gap = await looked(journal, last, (first + more, "nobody"))
    assert (gap > last) is is_lost


@pytest.mark.parametrize(("more", "is_lost"), [(-1, False), (0, False), (1, True)])
async def test_what_was_given_before_a_gap_is_said_already(
    hub, client, journal, gap, more, is_lost
):
    _, begins = gap
    found = await looked(journal, begins + more, (begins + more, "nobody"))
    assert (found > begins) is is_lost
    assert len(await gaps(client)) == (2 if is_lost else 1)


async def test_a_change_that_was_looked_for_and_is_lost_by_the_next_failover_is_missed(
    hub, client, losing
):
    readers = Readers(hub)
    peer = readers.join()
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
        await hub.losses.look(readers.feed)
    await JournalStore(client, window_changes=10_000).append(CHANNEL, submission("new"))
    await rings(hub)
    await readers.settle()
    assert peer.closed == 4410
    assert len(await gaps(client)) == 1


@pytest.mark.parametrize("repeated", [False, True])
async def test_an_append_that_stores_nothing_does_not_forget_what_it_has_found(
    hub, client, losing, repeated
):
    """A repetition, or a key that was used for something else, knows of an older change at most."""
    await hub.publish(CHANNEL, submission("older", key="k"))
    async with losing:
        await hub.publish(CHANNEL, submission("newest"))
        if repeated:
            await hub.publish(CHANNEL, submission("older", key="k"))
        else:
            other = submission("other", key="k")
            other = type(other)(other.fragments, "k", "another")
            with pytest.raises(Exception, match="was used for other changes"):
                await hub.publish(CHANNEL, other)
    await JournalStore(client, window_changes=10_000).append(CHANNEL, submission("new"))
    await hub.start()
    assert len(await gaps(client)) == 1


async def test_a_load_that_stores_nothing_does_not_claim_the_change_of_another(hub, client):
    """Its rows are outdated; the journal ends with a change whose message was not heard yet."""
    stranger = JournalStore(client, window_changes=10_000)
    await stranger.append(CHANNEL, submission("newer"))
    (fragment,) = submission("loaded").fragments
    loaded = Submission([msgspec.structs.replace(fragment, load="ended")])
    await hub.publish(CHANNEL, loaded)
    await hub.following.read_new()
    await hub.head(CHANNEL)
    await hub.publish(CHANNEL, submission("next"))
    assert await names(client) == ["newer", "next"]
    assert await gaps(client) == []


async def test_a_gap_that_is_lost_itself_is_left_again(hub, client, losing):
    """Who comes from before it is told, also later."""
    kept = await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
    async with losing:
        await hub.start()
        (first,) = await gaps(client)
    assert await gaps(client) == []
    await JournalStore(client, window_changes=10_000).append(CHANNEL, submission("new"))
    await hub.start()
    (gap,) = await gaps(client)
    assert gap > first
    assert await names(client) == ["kept", "new"]
    new = await hub.reading.after(hub.feed(CHANNEL), kept.until)
    with pytest.raises(HistoryDeleted):
        await hub.reading.after(hub.feed(CHANNEL), new.until)


async def test_a_set_that_was_made_anew_has_lost_nothing_of_the_one_before(hub, client, losing):
    other = await started(client)
    async with losing:
        await hub.publish(CHANNEL, submission("of-the-old"))
    await other.remove_set("a")
    await other.add_set("a")
    await other.publish(CHANNEL, submission("of-the-new"))
    await hub.start()
    await hub.publish(CHANNEL, submission("next"))
    assert await names(client) == ["of-the-new", "next"]
    assert await gaps(client) == []


async def test_a_source_that_repeats_a_datetime_does_not_hide_what_is_lost_before_it(
    hub, client, losing
):
    """Two changes are lost, and the second is published again, at its old position, where nobody
    knows of them: its mark is another one."""
    stranger = await started(client)
    now = await redis_now(client)
    first, second = (str(Position(now + each)) for each in range(2))
    async with losing:
        await hub.publish(CHANNEL, submission("first", datetime=first))
        lost = await hub.publish(CHANNEL, submission("second", datetime=second))
    again = await stranger.publish(CHANNEL, submission("second", datetime=second))
    assert again.until == lost.until == Position.parse(second), "otherwise this test proves nothing"
    await hub.start()
    (gap,) = await gaps(client)
    assert gap > again.until
    assert await names(client) == ["second"]


async def test_who_has_found_a_redis_gives_no_position_from_before_that(hub, client, losing):
    datetime = str(Position(await redis_now(client)))
    async with losing:
        lost = await hub.publish(CHANNEL, submission("1", datetime=datetime))
        assert lost.until == Position.parse(datetime)
    new = await started(client)
    again = await new.publish(CHANNEL, submission("1", datetime=datetime))
    assert again.until > lost.until


# --- keys -----------------------------------------------------------------------------------------


async def test_a_key_is_lost_with_its_rows_and_stored_once_more(hub, client, losing):
    """Its Source had no answer, and repeats it: it has one position then, and one answer."""
    other = await started(client)
    async with losing:
        lost = await hub.publish(CHANNEL, submission("1", key="k"))
    again = await other.publish(CHANNEL, submission("1", key="k"))
    for each in (hub, other):
        await each.start()
        assert await each.publish(CHANNEL, submission("1", key="k")) == again
    assert again.until > lost.until
    assert await names(client) == ["1"]
    assert len(await gaps(client)) == 1


async def test_a_key_that_is_left_is_answered_as_before(hub, client, losing):
    before = await hub.publish(CHANNEL, submission("1", key="k"))
    async with losing:
        await hub.publish(CHANNEL, submission("2"))
    assert await hub.publish(CHANNEL, submission("1", key="k")) == before
    assert await names(client) == ["1"]
    assert len(await gaps(client)) == 1, "a repetition says it, too"


# --- what fails meanwhile -------------------------------------------------------------------------


@pytest.fixture
async def slow(way: SlowWay) -> AsyncIterator[Journals]:
    """A hub whose way to Redis may lose an answer."""
    client = connect(way.url)
    hub = hub_on(client)
    await hub.add_set("a")
    await hub.start()
    yield hub
    await client.aclose()


@pytest.mark.parametrize("command", ["INFO", "GET", "EVALSHA", "HMGET", "XRANGE"])
async def test_an_answer_that_is_lost_while_a_loss_is_said_says_it_once(
    own_redis: OwnRedis, way, slow, command
):
    direct = connect(own_redis.url)
    readers = Readers(slow)
    peer = readers.join()
    await slow.publish(CHANNEL, submission("kept"))
    async with Losing(direct, "rsnotify:{a}*"):
        await slow.publish(CHANNEL, submission("lost"))
    await JournalStore(direct, window_changes=10_000).append(CHANNEL, submission("new"))
    way.lose_next_answer(command)

    async def is_said() -> bool:
        try:
            await slow.start()
        except TryAgain:
            return False
        return way.lost == 1 and peer.closed is not None

    await until(is_said)
    await slow.publish(CHANNEL, submission("next"))
    assert peer.closed == 4410
    assert await names(direct) == ["kept", "new", "next"]
    assert len(await gaps(direct)) == 1
    await direct.aclose()


async def test_a_journal_that_cannot_be_read_hides_the_loss_of_no_other(hub, client, losing):
    await hub.add_set("b")
    await hub.publish(ChannelName("b", "change"), submission("x"))
    async with losing:
        await hub.publish(CHANNEL, submission("1"))
    await client.delete("rsnotify:{b}:change")
    await client.set("rsnotify:{b}:change", "damage")
    await hub.start()
    assert len(await gaps(client)) == 1
    assert hub.checking.is_current


async def test_a_journal_that_is_gone_ends_its_feed_and_hides_no_loss(hub, client, losing):
    await hub.add_set("b")
    await hub.publish(ChannelName("b", "change"), submission("x"))
    async with losing:
        await hub.publish(CHANNEL, submission("1"))
    await client.hdel(keys.SETS, "b")
    await client.delete(keys.record(ChannelName("b", "change")))
    await client.incr(keys.SETS_VERSION)
    await hub.start()
    assert len(await gaps(client)) == 1
    with pytest.raises(NoSuchSet):
        hub.feed(ChannelName("b", "change"))


async def test_the_framework_channel_says_its_losses_too(hub, client, losing):
    kept = await hub.publish(FRAMEWORK, submission("kept"))
    async with losing:
        await hub.publish(FRAMEWORK, submission("lost"))
    after = await hub.publish(FRAMEWORK, submission("after"))
    await hub.start()
    with pytest.raises(HistoryDeleted) as told:
        await hub.reading.after(hub.feed(FRAMEWORK), kept.until)
    assert told.value.begins == after.from_ > kept.until
    found = await hub.reading.after(hub.feed(FRAMEWORK), after.from_)
    assert found is not None
    assert found.count == 1
    assert await gaps(client) == [], "the other channel has lost nothing"


# --- what an operator sees ------------------------------------------------------------------------


async def test_the_log_names_the_set_and_what_to_do_and_the_gap_is_counted(client, losing, caplog):
    journal = JournalStore(client, window_changes=10_000)
    hub = await started(client)
    await hub.add_set("a")
    witness = hub.feed(CHANNEL).witness
    async with losing:
        await journal.append(CHANNEL, submission("lost"), witness)
    assert journal.appends.gaps.count == 0
    after = await journal.append(CHANNEL, submission("next"), witness)
    (said,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert said.startswith("Redis has lost changes of a/change ")
    assert str(after.from_) in said
    assert "load their whole state" in said
    assert journal.appends.gaps.count == 1
    assert journal.appends.gaps.newest == {CHANNEL: after.from_}
    (standing,) = await journal.standings([CHANNEL])
    assert isinstance(standing, Standing)
    assert standing.gap == after.from_


# --- lists and snapshots --------------------------------------------------------------------------

OPEN, INDEX = f"/{SET}/changelist.xml", f"/{SET}/changelist-index.xml"


async def looking_when_asked(client: Client, changes: int = 10_000) -> Pulling:
    """It sees what Redis has lost when it is started again; one that follows looks now and then."""
    pulling = Pulling(client, changes=changes)
    await pulling.hub.add_set(SET)
    return pulling


@pytest.fixture
def losing_documents(client: Client) -> Losing:
    return Losing(client, f"rsnotify:{{{SET}}}*")


async def listed(pulling: Pulling) -> list[str]:
    """The resources of all Change Lists, in their order."""
    found = []
    for entry in (await pulling.document(INDEX)).entries:
        assert entry.loc is not None
        found += await of_list(pulling, entry.loc)
    return found


async def of_list(pulling: Pulling, path: str) -> list[str]:
    entries = parse_document((await pulling.get(path)).body).entries
    return [(each.loc or "").rpartition("/")[2] for each in entries]


async def test_no_list_in_memory_keeps_what_was_lost(client, losing_documents):
    pulling = await looking_when_asked(client)
    await pulling.update("kept")
    async with losing_documents:
        lost = await pulling.update("lost")
        assert await of_list(pulling, OPEN) == ["kept", "lost"]
    stranger = Pulling(client)
    await stranger.hub.start()
    new = await stranger.update("new")
    await pulling.hub.start()
    await pulling.update("next")
    await stranger.hub.start()
    for each in (pulling, stranger):
        assert await of_list(each, OPEN) == ["next"]
        assert await listed(each) == ["kept", "new", "next"]
        assert await of_list(each, f"{OPEN}?from={lost.until}") == ["new"], "what is left"
        assert (await each.get(f"{OPEN}?from={new.until}")).status == 410


async def test_lists_that_were_closed_above_a_loss_are_gone_and_what_is_left_is_listed_once(
    client, losing_documents
):
    pulling = await looking_when_asked(client, changes=2)
    await pulling.update("kept")
    async with losing_documents:
        for name in ("lost-1", "lost-2", "lost-3"):
            await pulling.update(name)
        assert await listed(pulling) == ["kept", "lost-1", "lost-2", "lost-3"]
    stranger = Pulling(client, changes=2)
    await stranger.hub.start()
    for name in ("new-1", "new-2", "new-3"):
        await stranger.update(name)
    await stranger.keep_windows()
    await pulling.hub.start()
    await pulling.update("next")
    for each in (pulling, stranger):
        await each.hub.start()
        assert await listed(each) == ["kept", "new-1", "new-2", "new-3", "next"]


@pytest.mark.parametrize("more", [0, -1])
async def test_who_goes_on_from_before_a_gap_is_told_410_and_from_its_end_is_served(
    client, losing_documents, more
):
    pulling = await looking_when_asked(client)
    await pulling.update("kept")
    async with losing_documents:
        await pulling.update("lost")
    next_ = await pulling.update("next")
    answer = await pulling.get(f"{OPEN}?from={Position(next_.from_ + more)}")
    assert answer.status == (200 if more == 0 else 410), answer.body


async def test_no_list_has_what_no_replica_has_confirmed(client, redis_url):
    """Also where that has filled a window: a failover could lose it, and nobody would know."""
    kept = await (await looking_when_asked(client, changes=2)).update("confirmed")
    async with connect(redis_url, replicas=Replicas(1, wait_milliseconds=1)) as careful:
        pulling = Pulling(careful, changes=2)
        await pulling.hub.start()
        for name in ("closing", "other", "closing-too"):
            with pytest.raises(TooFewReplicas):
                await pulling.update(name)
        pages = (f"{OPEN}?from={kept.from_}", f"{OPEN}?from={kept.from_}&limit=10")
        for path in (OPEN, change_list(SET, kept.from_), *pages):
            assert await of_list(pulling, path) == ["confirmed"], path
        assert await listed(pulling) == ["confirmed"]
        *_, newest = (await pulling.windows.span(SET)).windows
        assert (await pulling.get(change_list(SET, newest.from_))).status == 503
        assert await of_list(pulling, f"{OPEN}?from={kept.until}") == []


async def test_a_snapshot_after_a_loss_lacks_what_was_lost(client, losing_documents):
    """Whoever had it is told, takes the Resource List, and rolls it back."""
    pulling = await looking_when_asked(client)
    await pulling.update("kept")
    async with losing_documents:
        await pulling.update("lost")
    stranger = Pulling(client)
    await stranger.hub.start()
    before = await stranger.upkeep.snapshots.take(SET)
    await pulling.hub.start()
    (gap,) = await gaps(client, CHANGES)
    assert before is not None
    assert before.at < gap
    assert (await stranger.get(f"{OPEN}?from={before.at}")).status == 410
    after = await stranger.upkeep.snapshots.take(SET)
    assert after is None or after.at >= gap


async def test_what_only_a_resource_list_had_is_missed_by_who_made_it(client, losing_documents):
    """Whoever has appended it is gone."""
    pulling = await looking_when_asked(client)
    async with losing_documents:
        await Pulling(client).journal.append(CHANGES, submission("of the dead"))
        taken = await pulling.upkeep.snapshots.take(SET)
        assert taken is not None
    await pulling.hub.start()
    (gap,) = await gaps(client, CHANGES)
    assert gap > taken.at
