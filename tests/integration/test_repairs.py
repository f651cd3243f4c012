"""Journals that have lost their newest changes, repaired by the hubs that remember them."""

import asyncio

import pytest

from rsnotify.errors import HistoryDeleted, Rejected, TryAgain
from rsnotify.journal import keys, repairing
from rsnotify.journal.coordination import redis_now
from rsnotify.journal.gzip_parts import PackedEntries, Packer
from rsnotify.journal.healing import loc_of
from rsnotify.journal.journal import Journal
from rsnotify.journal.journals import Journals
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.journal.window import following_from, stretch_after
from rsnotify.journal.windows import Windows
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.notification import ChannelName
from tests.support.faults import Losing
from tests.support.hubs import hub_on, started, submission

CHANNEL = ChannelName("a", "change")


@pytest.fixture
async def hub(client: Client) -> Journals:
    hub = hub_on(client)
    await hub.add_set("a")
    await hub.start()
    return hub


async def stored(client: Client) -> list[tuple[Position, str]]:
    journal = Journal(client, window_changes=10_000)
    (standing,) = await journal.standings([CHANNEL])
    rows, _ = await journal.read_back(CHANNEL, standing.head, count=2_000)
    rows.reverse()
    return [(at, xml.split(b"</loc>")[0].rpartition(b"/")[2].decode()) for at, xml in rows]


async def names(client: Client) -> list[str]:
    return [name for _, name in await stored(client)]


async def state(client: Client) -> set[str]:
    """The resources that the set has now."""
    found = set()
    for shard in range(keys.STATE_SHARDS):
        for loc in await client.hkeys(keys.state("a", shard)):
            found.add(loc.rpartition(b"/")[2].decode())
    return found


@pytest.fixture
def losing(client: Client) -> Losing:
    return Losing(client, "rsnotify:{a}*")


async def test_lost_changes_are_put_back_before_the_next_one(hub, client, losing):
    await hub.publish(CHANNEL, submission("1"))
    async with losing:
        await hub.publish(CHANNEL, submission("2"))
        await hub.publish(CHANNEL, submission("3"))
        before = await stored(client)
    assert await names(client) == ["1"]
    await hub.publish(CHANNEL, submission("4"))
    assert (await stored(client))[:3] == before
    assert await names(client) == ["1", "2", "3", "4"]
    assert await state(client) == {"1", "2", "3", "4"}


async def test_lost_changes_are_put_back_although_nothing_is_published(hub, client, losing):
    async with losing:
        await hub.publish(CHANNEL, submission("1"))
    await hub.start()  # as the follow loop does every second
    assert await names(client) == ["1"]


async def test_a_lost_deletion_is_put_back(hub, client, losing):
    await hub.publish(CHANNEL, submission("1"))
    async with losing:
        await hub.publish(CHANNEL, submission("1", change="deleted"))
    await hub.publish(CHANNEL, submission("2"))
    assert await state(client) == {"2"}


async def test_a_lost_key_is_answered_as_before(hub, client, losing):
    async with losing:
        before = await hub.publish(CHANNEL, submission("1", key="k"))
    await hub.publish(CHANNEL, submission("2"))
    assert await hub.publish(CHANNEL, submission("1", key="k")) == before
    assert await names(client) == ["1", "2"]


async def test_what_a_hub_without_memory_has_appended_since_stays(hub, client, losing):
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
    other = await started(client)
    await other.publish(CHANNEL, submission("new"))
    await hub.start()
    await hub.publish(CHANNEL, submission("next"))
    assert await names(client) == ["new", "lost", "next"]


async def test_the_newest_change_of_a_resource_stays_the_newest(hub, client, losing):
    async with losing:
        await hub.publish(CHANNEL, submission("1", change="created"))
    other = await started(client)
    await other.publish(CHANNEL, submission("1", change="deleted"))
    await hub.start()
    await hub.publish(CHANNEL, submission("2"))
    assert await names(client) == ["1", "1", "2"]
    assert await state(client) == {"2"}


async def test_hubs_that_remember_the_same_put_it_back_once(hub, client, losing):
    others = [await started(client) for _ in range(3)]
    async with losing:
        for number in range(10):
            await hub.publish(CHANNEL, submission(str(number)))
        for other in others:
            feed = other.feed(CHANNEL)
            feed.watch(Silent())
            await other.start()
            assert feed.memory.newest == feed.tail.head > Position(0)
    new = await started(client)
    await new.publish(CHANNEL, submission("new"))
    await asyncio.gather(*(each.start() for each in (hub, *others)))
    await asyncio.gather(*(each.publish(CHANNEL, submission("last")) for each in (hub, *others)))
    found = await names(client)
    assert found == ["new", *map(str, range(10)), *["last"] * 4]


class Silent:
    """A reader that only counts as one."""

    writes = 1

    def push(self, notification: object) -> None: ...

    def turn_private(self) -> None: ...

    def end(self) -> None: ...


@pytest.fixture
def alone(monkeypatch) -> None:
    """No other process may remember anything: nobody waits for them."""
    monkeypatch.setattr(repairing, "ORDER_SECONDS", 0)
    monkeypatch.setattr(repairing, "OTHERS_SECONDS", 0)


@pytest.mark.usefixtures("alone")
async def test_positions_do_not_come_again_when_nobody_remembers_the_changes(hub, client, losing):
    async with losing:
        lost = await hub.publish(CHANNEL, submission("lost"))
        hub.feed(CHANNEL).memory.release()
    await client.hset(keys.record(CHANNEL), "last", int(lost.from_))
    after = await hub.publish(CHANNEL, submission("next"))
    assert after.until > lost.until
    assert await names(client) == ["next"]


# --- keys ----------------------------------------------------------------------------------------


async def read_by(hub: Journals) -> None:
    """Let it read on, as for a reader, what has come."""
    feed = hub.feed(CHANNEL)
    feed.watch(Silent())
    await hub.start()
    assert feed.memory.rows


async def test_a_key_is_stored_once_although_a_reading_hub_repairs_first(hub, client, losing):
    other = await started(client)
    async with losing:
        for number in range(20):
            await hub.publish(CHANNEL, submission(str(number), key=f"k{number}"))
        await read_by(other)
    await other.start()
    for publisher in (hub, other):
        for number in range(20):
            await publisher.publish(CHANNEL, submission(str(number), key=f"k{number}"))
    assert await names(client) == [*map(str, range(20))]


async def test_a_key_that_is_repeated_before_the_repair_is_stored_once(hub, client, losing):
    """Its row was read by one hub, and lost; another has stored the repetition meanwhile."""
    new = await started(client)
    other = await started(client)
    async with losing:
        await hub.publish(CHANNEL, submission("1", key="k"))
        await hub.publish(CHANNEL, submission("2"))
        await read_by(other)
    repeated = await new.publish(CHANNEL, submission("1", key="k"))
    for each in (other, hub):
        await each.start()
        assert await each.publish(CHANNEL, submission("1", key="k")) == repeated
    await new.publish(CHANNEL, submission("3"))
    assert await names(client) == ["1", "2", "3"]


async def test_whoever_reads_what_was_put_back_knows_its_key(hub, client, losing):
    async with losing:
        await hub.publish(CHANNEL, submission("1", key="k"))
        known = hub.feed(CHANNEL).memory
        keys = known.keys_of(known.rows.items())
        assert len(keys) == 1
    reading = await started(client)
    reading.feed(CHANNEL).watch(Silent())
    await reading.start()
    await hub.start()
    await read_by(reading)
    memory = reading.feed(CHANNEL).memory
    assert [key.digest for key in memory.keys_of(memory.rows.items())] == [keys[0].digest]


async def test_a_key_that_was_put_elsewhere_and_is_repeated_leaves_no_gap(
    hub, client, losing, alone
):
    """Where the interval of its answer begins then, there never was a change."""
    other = await started(client)
    async with losing:
        await hub.publish(CHANNEL, submission("1", key="k"))
    await other.publish(CHANNEL, submission("2"))
    await hub.start()
    again = await other.publish(CHANNEL, submission("1", key="k"))
    assert again.from_ not in [at for at, _ in await stored(client)]
    await client.replicaof("127.0.0.1", "1")
    await client.replicaof("NO", "ONE")  # another one has taken over, and has all
    for each in (hub, other):
        await each.start()
        assert each.repairing.gaps == 0
    assert await names(client) == ["2", "1"]


async def test_what_was_stored_elsewhere_does_not_stop_a_reader(hub, client, losing):
    new = await started(client)
    reader = Reader()
    hub.feed(CHANNEL).watch(reader)
    async with losing:
        await hub.publish(CHANNEL, submission("1", key="k"))
    await new.publish(CHANNEL, submission("1", key="k"))
    await hub.start()
    await hub.publish(CHANNEL, submission("2"))
    await hub.start()
    assert reader.joins
    assert reader.told == ["1", "1", "2"]  # again, because its first position is lost


@pytest.mark.parametrize("fingerprint", ["", "fingerprint"])
async def test_a_key_of_the_hub_itself_needs_no_fingerprint(hub, client, losing, fingerprint):
    request = Submission(submission("1").fragments, "k", fingerprint)
    async with losing:
        before = await hub.publish(CHANNEL, request)
    await hub.start()
    assert await hub.publish(CHANNEL, request) == before
    assert await names(client) == ["1"]


@pytest.mark.parametrize("count", [1, 3])
async def test_a_request_that_is_stored_again_is_one_under_its_key(hub, client, losing, count):
    """At its new positions, also when it is lost once more."""
    request = submission(*map(str, range(count)), key="k")
    new = await started(client)
    async with losing:
        before = await hub.publish(CHANNEL, request)
    await new.publish(CHANNEL, submission("new"))
    await hub.start()  # what it puts back comes behind what is new
    there = await stored(client)
    found = await new.publish(CHANNEL, request)
    assert (found.until, found.until - found.from_) == (there[-1][0], count)
    assert found != before
    assert [name for _, name in there] == ["new", *map(str, range(count))]


async def test_a_key_is_known_for_a_mistake_after_a_repair(hub, client, losing):
    async with losing:
        await hub.publish(CHANNEL, submission("1", key="k"))
    await hub.start()
    with pytest.raises(Rejected, match="was used for other changes"):
        await hub.publish(CHANNEL, Submission(submission("2").fragments, "k", "another"))


async def test_what_is_removed_from_a_closed_list_is_in_another(client, losing):
    """Readers of one hub are past a change that another has appended below: it moves to the end."""
    hub = await started(client, window_changes=2)
    await hub.add_set("a")
    feed = hub.feed(CHANNEL)
    feed.watch(Silent())
    async with losing:
        clock_ahead = await redis_now(client) + 10_000_000
        await client.hset(keys.record(CHANNEL), "last", clock_ahead)
        await hub.publish(CHANNEL, submission("ahead", key="ahead"))
        await hub.start()
    other = await started(client, window_changes=2)
    for name in ("1", "2", "3"):
        await other.publish(CHANNEL, submission(name, key=name))
    windows = Windows(client)
    (closed,) = (await windows.span("a")).windows
    await windows.keep("a", closed, PackedEntries.from_bytes(Packer().packed().to_bytes()))
    await hub.start()
    assert sorted(await names(client)) == ["1", "2", "3", "ahead"]
    span = await windows.span("a")
    found = [window.changes for window in span.windows]
    assert found[0] == 0
    assert sum(found) + span.record.window_count == 4
    assert await windows.packed("a", closed) is None
    for name in ("1", "2", "3"):
        await other.publish(CHANNEL, submission(name, key=name))
    assert len(await names(client)) == 4


# --- what nobody remembers ------------------------------------------------------------------------


@pytest.fixture
async def gap(hub, client, losing, alone) -> tuple[Position, Position]:
    """Between `kept` and the first change `after`, changes were lost that nobody remembers."""
    kept = await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        for number in range(3):
            await hub.publish(CHANNEL, submission(f"lost-{number}"))
        hub.feed(CHANNEL).memory.release()
    after = await hub.publish(CHANNEL, submission("after"))
    await hub.start()
    return kept.until, after.from_


async def test_a_reader_from_before_a_loss_gets_what_is_left_and_is_then_told(hub, client, gap):
    kept, begins = gap
    feed = hub.feed(CHANNEL)
    found = await hub.reading.after(feed, Position(kept - 1))
    assert (found.until, found.count) == (kept, 1)
    for cursor in (kept, begins - 1):
        with pytest.raises(HistoryDeleted) as told:
            await hub.reading.after(feed, Position(cursor))
        assert told.value.begins == begins
    assert (await hub.reading.after(feed, begins)).count == 1
    assert hub.repairing.gaps == 1


async def test_change_lists_do_not_join_where_changes_are_lost(hub, client, gap):
    kept, begins = gap
    span = await Windows(client).span("a")
    (closed,) = span.windows
    assert (closed.until, closed.changes) == (kept, 1)
    assert (span.record.window_from, span.record.window_count) == (begins, 1)
    assert stretch_after(Position(kept - 1), span).until == kept
    assert following_from(await Windows(client).span("a", after=kept)) == begins


async def test_no_reader_of_any_process_passes_a_gap_without_being_told(hub, client, losing, alone):
    other = await started(client)
    reader = Reader()
    other.feed(CHANNEL).watch(reader)
    await hub.publish(CHANNEL, submission("kept"))
    await other.start()
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
        hub.feed(CHANNEL).memory.release()
    await hub.publish(CHANNEL, submission("after"))
    other.feeds.ring(CHANNEL, await hub.head(CHANNEL))
    await other.following.read_new()  # as soon as the bell rings, before any check
    await other.start()
    assert reader.told == ["kept", "after"]
    assert not reader.joins


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


async def test_what_was_read_before_a_loss_is_kept_for_nobody_after_the_repair(
    hub, client, losing, monkeypatch
):
    held_up = HeldUpReading(hub, monkeypatch)
    async with losing:
        reading = await held_up.of_what_is_lost(hub.reading.after)
    await (await started(client)).publish(CHANNEL, submission("new"))
    await hub.start()
    assert await names(client) == ["new", "lost"]
    held_up.goes_on.set()
    assert (await reading).count == 1
    assert (await hub.reading.after(held_up.feed, held_up.begin)).count == 2


async def test_what_was_read_before_a_gap_is_joined_with_nothing_behind_it(
    hub, client, losing, alone, monkeypatch
):
    held_up = HeldUpReading(hub, monkeypatch)
    feed = held_up.feed
    async with losing:
        reading = await held_up.of_what_is_lost(hub.reading.stretch_after)
        feed.memory.release()
    feed.watch(Silent())
    after = await hub.publish(CHANNEL, submission("after"))
    await hub.start()
    held_up.goes_on.set()
    assert (feed.tail.start, feed.tail.head) == after
    assert (await reading).until == after.from_
    with pytest.raises(HistoryDeleted):
        await hub.reading.after(feed, held_up.begin)


async def test_what_is_not_remembered_here_is_left_to_others_for_a_while(hub, client, losing):
    other = await started(client)
    async with losing:
        await hub.publish(CHANNEL, submission("1"))
        await other.start()  # it has no readers, and hears only that there was a change
        await other.publish(CHANNEL, submission("2"))
    with pytest.raises(TryAgain, match="still to be put back"):
        await other.publish(CHANNEL, submission("3"))
    await hub.start()
    await other.publish(CHANNEL, submission("3"))
    assert await names(client) == ["1", "2", "3"]
    assert other.repairing.gaps == 0


async def test_who_knows_only_the_end_of_a_request_lets_others_put_it_back(hub, client, losing):
    """…with its key, so its Source, who had no answer and repeats it, stores it once."""
    very_long = submission(*map(str, range(1001)), key="k")
    other = await started(client)
    await other.publish(CHANNEL, submission("kept"))
    async with losing:
        before = await hub.publish(CHANNEL, very_long)
        await other.publish(CHANNEL, submission("mine"))
    with pytest.raises(TryAgain, match="still to be put back"):
        await other.publish(CHANNEL, very_long)
    await hub.start()
    found = await other.publish(CHANNEL, very_long)
    assert (found.from_, found.until) == (before.from_, before.until)
    assert await names(client) == ["kept", *map(str, range(1001)), "mine"]


async def test_hubs_that_each_remember_a_part_put_back_all_of_it(hub, client, losing, monkeypatch):
    """None of them has read what the other has appended, and none waits for the other for ever."""
    monkeypatch.setattr(repairing, "ORDER_SECONDS", 0)
    other = await started(client)
    async with losing:
        for number, each in enumerate([hub, other, hub, other, hub]):
            await each.publish(CHANNEL, submission(str(number)))
    for each in (hub, other, hub):
        await each.start()
    await hub.publish(CHANNEL, submission("next"))
    assert sorted(await names(client)) == ["0", "1", "2", "3", "4", "next"]
    assert hub.repairing.gaps == other.repairing.gaps == 0


async def test_the_change_before_ones_own_is_put_back_if_whoever_appended_it_is_gone(
    hub, client, losing, alone
):
    other = await started(client)
    await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        await other.publish(CHANNEL, submission("of-the-dead"))
        await hub.publish(CHANNEL, submission("mine"))
        before = await stored(client)
    await hub.start()
    assert await stored(client) == before
    assert hub.repairing.gaps == 0


@pytest.mark.parametrize(("missing", "told"), [(1, ["newest"]), (0, [])])
async def test_an_append_tells_the_change_before_it_if_it_was_not_seen(hub, client, missing, told):
    newest = await hub.publish(CHANNEL, submission("newest"))
    journal = Journal(client, window_changes=10_000)
    seen = Position(newest.until - missing)
    found = await journal.append(CHANNEL, submission("next"), seen=seen)
    assert [loc_of(xml).rpartition(b"/")[2].decode() for _, xml in found.before] == told


@pytest.mark.parametrize(("changes", "told"), [(1000, 1000), (1001, 1)])
async def test_an_append_tells_the_whole_request_before_it_unless_that_is_very_long(
    hub, client, changes, told
):
    await hub.publish(CHANNEL, submission("earlier"))
    newest = await hub.publish(CHANNEL, submission(*map(str, range(changes)), key="k"))
    journal = Journal(client, window_changes=10_000)
    seen = Position(newest.until - 1)
    found = await journal.append(CHANNEL, submission("next"), seen=seen)
    numbers = [loc_of(xml).rpartition(b"/")[2].decode() for _, xml in found.before]
    assert numbers == [str(number) for number in range(changes - told, changes)]


async def test_the_end_of_a_request_comes_though_others_rows_lie_within_it(hub, client, losing):
    """They were stored by the new primary, before the request was put back."""
    kept = await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        newest = await hub.publish(CHANNEL, submission(*map(str, range(1000)), key="k"))
    early = submission("early", datetime=str(Position(kept.until + 1)))
    await Journal(client, window_changes=10_000).append(CHANNEL, early)
    await hub.start()
    assert [at for at, name in await stored(client) if name == "early"] == [kept.until + 1]
    journal = Journal(client, window_changes=10_000)
    found = await journal.append(CHANNEL, submission("next"), seen=Position(newest.until - 1))
    assert (len(found.before), found.before[-1][0]) == (1000, newest.until)


async def test_a_request_that_was_seen_only_as_the_one_before_keeps_its_key(
    hub, client, losing, alone
):
    """Its Source had no answer, and repeats it after it has been put back."""
    other = await started(client)
    await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        first = await other.publish(CHANNEL, submission("0", "1", "2", key="k"))  # and `other` dies
        await hub.publish(CHANNEL, submission("mine"))
        before = await stored(client)
    await hub.start()
    assert await hub.publish(CHANNEL, submission("0", "1", "2", key="k")) == first
    assert await stored(client) == before


@pytest.mark.parametrize(("missing", "told"), [(1, ["before"]), (0, [])])
async def test_a_repeated_append_tells_the_change_before_its_first_try(hub, client, missing, told):
    before = await hub.publish(CHANNEL, submission("before"))
    await hub.publish(CHANNEL, submission("mine", key="k"))
    await hub.publish(CHANNEL, submission("after"))
    journal = Journal(client, window_changes=10_000)
    seen = Position(before.until - missing)
    found = await journal.append(CHANNEL, submission("mine", key="k"), seen=seen)
    assert found.is_repeated
    assert [loc_of(xml).rpartition(b"/")[2].decode() for _, xml in found.before] == told


async def test_the_change_before_the_first_try_of_ones_own_is_put_back(hub, client, losing, alone):
    """A primary that was frozen and replaced has woken, and has done all that waited for it."""
    await hub.publish(CHANNEL, submission("kept"))
    async with losing:
        unanswered = Journal(client, window_changes=10_000)
        await unanswered.append(CHANNEL, submission("of-nobody"))
        await unanswered.append(CHANNEL, submission("mine", key="k"))
        await hub.publish(CHANNEL, submission("mine", key="k"))
        before = await stored(client)
    await hub.start()
    assert await stored(client) == before
    assert hub.repairing.gaps == 0


async def test_an_append_that_knows_nothing_of_the_channel_is_told_nothing(hub, client):
    await hub.publish(CHANNEL, submission("newest"))
    journal = Journal(client, window_changes=10_000)
    assert (await journal.append(CHANNEL, submission("next"))).before == ()


async def test_what_is_left_above_a_gap_goes_back_to_its_place(hub, client, losing, alone):
    other = await started(client)
    async with losing:
        await other.publish(CHANNEL, submission("lost"))  # and `other` dies
        await hub.start()  # it has no readers, and hears only that there was a change
        mine = await hub.publish(CHANNEL, submission("mine"))
    await hub.start()
    assert await stored(client) == [(mine.until, "mine")]
    with pytest.raises(HistoryDeleted):
        await hub.reading.after(hub.feed(CHANNEL), Position(mine.from_ - 1))
    assert (await hub.reading.after(hub.feed(CHANNEL), mine.from_)).until == mine.until


async def test_a_journal_that_cannot_be_read_stops_the_repair_of_no_other(hub, client, losing):
    await hub.add_set("b")
    await hub.publish(ChannelName("b", "change"), submission("x"))
    async with losing:
        await hub.publish(CHANNEL, submission("1"))
    await client.delete("rsnotify:{b}:change")
    await client.set("rsnotify:{b}:change", "damage")
    await hub.start()
    assert await names(client) == ["1"]
    assert hub.checking.is_current


async def test_a_reader_is_told_what_was_put_back_and_nothing_twice(hub, client, losing):
    reader = Reader()
    feed = hub.feed(CHANNEL)
    feed.watch(reader)
    await hub.publish(CHANNEL, submission("1"))
    await hub.start()
    async with losing:
        await hub.publish(CHANNEL, submission("2"))
        await hub.start()
        await hub.publish(CHANNEL, submission("3"))  # acknowledged, not yet told
    await hub.publish(CHANNEL, submission("4"))
    await hub.start()
    assert reader.told == ["1", "2", "3", "4"]
    assert reader.joins


async def test_readers_go_on_from_a_lost_change_that_was_appended_again(hub, client, losing):
    """Also those of a process that has not repaired the journal itself."""
    hubs, readers = [hub, await started(client)], [Reader(), Reader()]
    for each, reader in zip(hubs, readers, strict=True):
        each.feed(CHANNEL).watch(reader)
    async with losing:
        await hub.publish(CHANNEL, submission("lost"))
        for each in hubs:
            await each.start()
    stranger = await started(client)
    await stranger.publish(CHANNEL, submission("new"))
    for each in hubs:
        await each.start()
    await hub.publish(CHANNEL, submission("next"))
    for each in hubs:
        await each.start()
    for reader in readers:
        assert reader.told == ["lost", "new", "lost", "next"]
        assert reader.joins


class Reader(Silent):
    def __init__(self) -> None:
        self.told: list[str] = []
        self.intervals: list[tuple[Position, Position]] = []

    def push(self, notification) -> None:
        self.intervals.append((notification.from_, notification.until))
        for part in notification.payload.split(b"<loc>http://example.com/")[1:]:
            self.told.append(part.split(b"<")[0].decode())

    @property
    def joins(self) -> bool:
        ends = [until for _, until in self.intervals]
        return [begin for begin, _ in self.intervals[1:]] == ends[:-1]


async def test_a_set_that_was_made_again_gets_nothing_of_the_one_before(hub, client, losing):
    other = await started(client)
    async with losing:
        await hub.publish(CHANNEL, submission("of-the-old"))
    await other.remove_set("a")
    await other.add_set("a")
    await other.publish(CHANNEL, submission("of-the-new"))
    await hub.start()
    await hub.publish(CHANNEL, submission("next"))
    assert await names(client) == ["of-the-new", "next"]


# --- the hold ------------------------------------------------------------------------------------


async def test_nobody_appends_while_a_journal_is_repaired(hub, client):
    await client.set(keys.hold(CHANNEL), "somebody")
    publishing = asyncio.create_task(hub.publish(CHANNEL, submission("1")))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await asyncio.shield(publishing)
    assert await names(client) == []
    await client.delete(keys.hold(CHANNEL))
    await publishing
    assert await names(client) == ["1"]


async def test_a_hold_whose_holder_has_died_ends(hub, client, losing, monkeypatch):
    monkeypatch.setattr(repairing, "HOLD_SECONDS", 1)
    async with losing:
        await hub.publish(CHANNEL, submission("1"))
    await client.set(keys.hold(CHANNEL), "dead")  # for ever: the clock of Redis has gone back
    await hub.publish(CHANNEL, submission("2"))
    assert await names(client) == ["1", "2"]


async def test_a_repair_without_the_hold_is_none(hub, client, losing):
    async with losing:
        await hub.publish(CHANNEL, submission("1"))
    await client.set(keys.hold(CHANNEL), "another")
    one = repairing.Repairs(client, Journal(client, window_changes=10_000).window)
    created = Position.parse(hub.record("a").created)
    left = await one.remains(CHANNEL, created, Position(0))
    plan = repairing.Repair(
        [(Position(left.last + 1), fragment_of(Change("http://x/", "updated")).xml)]
    )
    done = await one.repair(CHANNEL, plan, last=left.last, seen=Position(0), holder="me")
    assert not done
    assert await names(client) == []
