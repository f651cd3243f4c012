"""What a follower decides without a network: where it stands, what is new, what it may forget."""

import asyncio
import shlex
import sqlite3
import threading
import tracemalloc
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.xml_writer import RS_NS, SITEMAP_NS, Entry, Md
from rsnotify_client import follow, live
from rsnotify_client.changelists import HistoryGone, ListRef, lists_after
from rsnotify_client.cursor import CursorStore, FileCursor, Ledger, SqliteCursor, store_of
from rsnotify_client.follower import NotJoined, Timeline
from rsnotify_client.following import FollowedChange, Keeper, first_position, handed_on
from rsnotify_client.live import Events
from rsnotify_client.notification import (
    Lost,
    Received,
    position_of,
    read_notification,
    rendered,
    resumed,
    standing,
    timed_changes,
)

T = [Position(1_795_000_000_000_000 + each) for each in range(10)]


def received(from_: int, *at: int, until: int | None = None, joins: bool = True) -> Received:
    changes = tuple(Change(f"http://example.com/{n}", "updated") for n in range(len(at)))
    end = T[until if until is not None else at[-1]]
    payload = f"{from_} {at} {until}".encode()
    return Received(payload, T[from_], end, changes, tuple(T[each] for each in at), joins)


def locs(found: Received | None) -> list[str]:
    return [change.loc[-1] for change in found.changes] if found else []


def test_notifications_that_join_are_handed_on_whole():
    timeline = Timeline(T[1])
    assert locs(timeline.joined(received(1, 2, 3))) == ["0", "1"]
    assert locs(timeline.joined(received(3, 4))) == ["0"]
    assert timeline.cursor == T[4]


def test_a_gap_is_seen_one_microsecond_after_the_cursor_and_not_at_it():
    with pytest.raises(NotJoined):
        Timeline(T[1]).joined(received(2, 3))
    assert locs(Timeline(T[1]).joined(received(1, 3))) == ["0"]


def test_a_peer_that_begins_after_the_cursor_had_nothing_before():
    timeline = Timeline(T[0])
    timeline.begin(T[1])
    assert timeline.cursor == T[1]
    assert locs(timeline.joined(received(1, 2))) == ["0"]


def test_a_peer_that_begins_before_the_cursor_does_not_move_it_back():
    timeline = Timeline(T[1])
    timeline.begin(T[0])
    assert timeline.cursor == T[1]


def set_back_of(timeline: Timeline) -> list[str]:
    found: list[str] = []
    timeline.when_set_back = found.append
    return found


@pytest.mark.parametrize(("begins", "is_back"), [(3, True), (4, False), (5, False)])
def test_a_peer_that_begins_before_what_it_has_sent_was_set_back(begins, is_back):
    timeline = Timeline(T[0])
    said = set_back_of(timeline)
    timeline.joined(received(0, 4))
    timeline.begin(T[begins])
    assert [f"ends at {T[3]} now, and at {T[4]} before" in each for each in said] == [
        True
    ] * is_back
    assert timeline.cursor == T[begins]
    assert locs(timeline.joined(received(begins, 6))) == ["0"]


def test_a_peer_is_not_set_back_that_begins_before_what_only_lists_had():
    timeline = Timeline(T[0])
    said = set_back_of(timeline)
    timeline.joined(received(0, 1))
    timeline.new_in(received(1, 5))
    timeline.begin(T[1])
    assert (said, timeline.cursor) == ([], T[5])


def test_what_was_heard_before_a_start_counts_for_where_the_peer_begins():
    timeline = Timeline(T[5], heard=T[4])
    said = set_back_of(timeline)
    timeline.begin(T[4])
    assert said == []
    timeline.begin(T[3])
    assert len(said) == 1


def test_a_notification_that_ends_before_another_is_new_and_said_unless_it_is_a_repetition():
    timeline = Timeline(T[0])
    said = set_back_of(timeline)
    timeline.joined(received(0, 2))
    timeline.joined(received(2, 6))
    assert timeline.joined(received(0, 2)) is None
    assert timeline.joined(received(2, 6)) is None
    assert said == []
    assert locs(timeline.joined(received(2, 3, 5))) == ["0", "1"]
    assert [f"a notification up to {T[5]} came after one up to {T[6]}" in each for each in said]
    assert locs(timeline.joined(received(5, 7))) == ["0"]
    assert len(said) == 1


def test_a_channel_that_says_no_intervals_is_never_set_back():
    timeline = Timeline(T[0])
    said = set_back_of(timeline)
    for at in (5, 3, 6):
        timeline.joined(received(0, at, joins=False))
    assert said == []


def test_what_was_handed_on_is_not_handed_on_again():
    timeline = Timeline(T[0])
    timeline.new_in(received(0, 1, 2, 3))
    assert timeline.joined(received(0, 1, 2, 3)) is None
    assert locs(timeline.joined(received(0, 1, 2, 3, 4))) == ["3"]


def test_several_changes_of_one_time_are_told_apart():
    timeline = Timeline(T[0])
    timeline.new_in(received(0, 1, 1))
    assert locs(timeline.new_in(received(0, 1, 1, 1))) == ["2"]


def test_a_change_of_which_the_list_says_more_than_the_channel_is_the_same():
    timeline = Timeline(T[0])
    timeline.new_in(received(0, 1))
    more = Change("http://example.com/0", "updated", hash="md5:x", length=1)
    assert timeline.new_in(Received(b"", T[0], T[1], (more,), (T[1],))) is None


def test_two_versions_of_one_time_are_told_apart_by_their_digests():
    timeline = Timeline(T[0])
    versions = [Change("http://example.com/0", "updated", hash=f"md5:{n}") for n in (1, 2)]
    for version in versions:
        assert timeline.new_in(Received(b"", T[0], T[1], (version,), (T[1],))) is not None


def test_changes_that_come_after_a_clock_stepped_back_are_told_apart_by_their_times():
    """They stand at the cursor, for positions never run backwards; none has a digest."""
    timeline = Timeline(T[0])
    told = [Change("http://example.com/0", "updated", datetime=str(T[each])) for each in (9, 1, 2)]
    found = []
    for count in (1, 2, 3):
        listed = Received(b"", T[0], T[9], tuple(told[:count]), (T[9],) * count)
        new = timeline.new_in(listed)
        found += new.changes if new else []
    assert found == told


def test_a_time_that_only_the_list_says_makes_no_other_change():
    timeline = Timeline(T[0])
    timeline.new_in(received(0, 1))
    more = Change("http://example.com/0", "updated", datetime=str(T[1]))
    assert timeline.new_in(Received(b"", T[0], T[1], (more,), (T[1],))) is None


def test_a_list_that_says_two_times_makes_no_other_change_than_a_channel_that_says_one():
    timeline = Timeline(T[0])
    told = Change("http://example.com/0", "updated", lastmod=str(T[0]))
    listed = Change("http://example.com/0", "updated", lastmod=str(T[0]), datetime=str(T[1]))
    timeline.joined(Received(b"", T[0], T[1], (told,), (T[1],)))
    assert timeline.new_in(Received(b"", T[0], T[1], (listed,), (T[1],))) is None


def test_a_stretch_without_changes_is_handed_on_only_if_the_cursor_moves():
    timeline = Timeline(T[2])
    assert timeline.new_in(received(0, until=1)) is None
    assert timeline.new_in(received(0, until=2)) is None
    assert timeline.new_in(received(2, until=3)) is not None


def test_a_channel_that_says_no_intervals_has_no_gaps():
    assert locs(Timeline(T[0]).joined(received(5, 6, joins=False))) == ["0"]


def test_lists_that_end_before_the_cursor_are_not_read():
    refs = [ListRef("a", T[0], T[2]), ListRef("b", T[2], T[4]), ListRef("c", T[4], None)]
    assert [ref.loc for ref in lists_after(refs, T[2])] == ["a", "b", "c"]
    assert [ref.loc for ref in lists_after(refs, T[3])] == ["b", "c"]
    assert [ref.loc for ref in lists_after(refs, None)] == ["a", "b", "c"]


def test_lists_that_begin_after_the_cursor_are_a_gap():
    refs = [ListRef("b", T[2], T[4]), ListRef("c", T[4], None)]
    assert lists_after(refs, T[2])
    with pytest.raises(HistoryGone, match="copy the Resource List again"):
        lists_after(refs, T[1])


def test_a_list_that_is_missing_in_the_middle_is_a_gap():
    refs = [ListRef("a", T[0], T[2]), ListRef("c", T[3], None)]
    with pytest.raises(HistoryGone):
        lists_after(refs, T[1])


def test_the_cursor_stays_before_what_is_not_dealt_with():
    ledger = Ledger()
    one, two, three = (ledger.expect(T[each], is_last=True) for each in (1, 2, 3))
    assert ledger.done(two) is None
    assert ledger.done(one) == T[2]
    assert ledger.done(three) == T[3]


def test_the_cursor_moves_to_a_time_only_when_all_changes_of_that_time_are_dealt_with():
    ledger = Ledger()
    one, two = ledger.expect(T[1], is_last=False), ledger.expect(T[1], is_last=True)
    assert ledger.done(one) is None
    assert ledger.done(two) == T[1]


def test_a_change_that_is_said_to_be_dealt_with_twice_counts_once():
    saved: list[str] = []
    keeper = Keeper(store_of((lambda: None, saved.append)))
    first, second = keeper.changes(received(0, 1, 2))
    with second:
        second.done()
    keeper.changes(standing(T[2]))
    assert saved == []
    first.done()
    second.done()
    assert saved == [str(T[2])]


def test_each_change_says_from_where_to_go_on_once_it_is_dealt_with():
    """Of those of one time only the last may be passed; behind the last of all, all is passed."""
    positions = (T[1], T[2], T[2], T[3])
    changes = tuple(Change(f"http://example.com/{each}", "updated") for each in range(4))
    found = Keeper(None).changes(Received(b"", T[0], T[4], changes, positions))
    assert [each.position for each in found] == [T[1], T[1], T[2], T[4]]
    (resource,) = Keeper(None).changes(
        Received(b"", T[0], T[0], changes[:1], positions[:1], is_state=True)
    )
    assert (resource.is_state, resource.position) == (True, None)


def test_changes_are_dealt_with_in_many_threads_and_the_cursor_is_the_last(tmp_path):
    store = FileCursor(tmp_path / "cursor")
    until = [Position(T[0] + each) for each in range(500)]
    changes = tuple(Change(f"http://example.com/{each}", "updated") for each in until)
    found = Keeper(store).changes(Received(b"", T[0], until[-1], changes, tuple(until)))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(FollowedChange.done, found))
    assert store.load() == until[-1]


def test_an_older_cursor_is_never_stored_after_a_newer_one():
    saved: list[str] = []
    is_saving, newer = threading.Event(), threading.Event()

    def save(cursor: str) -> None:
        is_saving.set()
        if cursor == str(T[1]):
            newer.wait(0.5)  # time enough for the other to pass it by, if it can
        saved.append(cursor)
        newer.set()

    first, second = Keeper(store_of((lambda: None, save))).changes(received(0, 1, 2))
    with ThreadPoolExecutor(1) as thread:
        thread.submit(first.done)
        assert is_saving.wait(60)
        second.done()
    assert saved == [str(T[1]), str(T[2])]


def test_while_a_cursor_is_stored_more_changes_are_handed_out():
    is_saving, goes_on = threading.Event(), threading.Event()

    def save(_: str) -> None:
        is_saving.set()
        goes_on.wait(60)

    keeper = Keeper(store_of((lambda: None, save)))
    (first,) = keeper.changes(received(0, 1))
    with ThreadPoolExecutor(2) as threads:
        saving = threads.submit(first.done)
        assert is_saving.wait(60)
        more = threads.submit(keeper.changes, received(1, 2))
        assert len(more.result(60)) == 1
        assert not saving.done()
        goes_on.set()


def test_a_store_may_deal_with_changes_itself():
    """What it stores at that moment is older than what it has dealt with."""
    saved: list[str] = []

    def save(cursor: str) -> None:
        second.done()
        saved.append(cursor)

    first, second = Keeper(store_of((lambda: None, save))).changes(received(0, 1, 2))
    thread = threading.Thread(target=first.done, daemon=True)
    thread.start()
    thread.join(60)
    assert saved == [str(T[1]), str(T[2])]


def test_of_many_changes_after_one_that_is_never_dealt_with_little_is_kept():
    ledger = Ledger()
    ledger.expect(T[0], is_last=True)
    tracemalloc.start()
    for each in range(10_000):
        ledger.done(ledger.expect(Position(T[1] + each), is_last=True))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000  # of all threads; these changes would take 2 MB


@pytest.mark.parametrize("name", ["cursor", "cursor.sqlite"])
def test_a_cursor_is_kept_in_a_file_or_in_sqlite(tmp_path, name):
    for store in (store_of(tmp_path / name), store_of(str(tmp_path / name))):
        assert store is not None
        before = store.load()
        store.save(T[3])
        assert (before, store.load()) in ((None, T[3]), (T[3], T[3]))
        if isinstance(store, SqliteCursor):
            store.close()


def test_a_database_of_cursors_is_closed_with_its_store(tmp_path):
    path = tmp_path / "cursors.db"
    store = SqliteCursor(path)
    store.save(T[1])
    assert is_open(path)
    del store
    assert not is_open(path)


def test_what_is_no_database_is_refused_and_not_left_open(tmp_path):
    path = tmp_path / "cursors.db"
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(InvalidSettings, match="not a database"):
        SqliteCursor(path)
    assert not is_open(path)


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    links = list(Path("/proc/self/fd").iterdir())
    return any(link.is_symlink() and link.readlink() == path for link in links)


HERE, ELSEWHERE = "http://a.example/x.xml", "http://b.example/x.xml"


@pytest.mark.parametrize(
    ("name", "mend"),
    [("cursor", "remove its second line"), ("cursor.db", "'DELETE FROM cursor_source'")],
)
def test_a_cursor_of_another_address_is_refused_and_left_as_it_is(tmp_path, name, mend):
    path = tmp_path / name
    assert first_position(store_of(path), T[1], HERE) == T[1]
    kept(path, HERE).save(T[2])
    for same in (HERE, HERE.replace("//", "//user:secret@") + f"/?access_token=secret&from={T[1]}"):
        kept(path, same).save(T[2])
    said = f"{name}: it keeps the place in {HERE}, not in {ELSEWHERE}: .*{mend}$"
    with pytest.raises(InvalidSettings, match=said):
        first_position(store_of(path), T[1], ELSEWHERE)
    assert first_position(store_of(path), T[1], HERE) == T[2]
    assert not any(b"secret" in each.read_bytes() for each in tmp_path.iterdir())


@pytest.mark.parametrize(("name", "kind"), [("cursor", FileCursor), ("cursor.db", SqliteCursor)])
def test_a_cursor_goes_to_another_address_if_one_says_that_it_has_moved(tmp_path, name, kind):
    path = tmp_path / name
    kept(path, HERE).save(T[1])
    with pytest.raises(InvalidSettings, match="keeps the place in"):
        first_position(kind(path, moved_from="http://c.example/"), None, ELSEWHERE)
    moved = kind(path, moved_from=f"{HERE}?access_token=secret")
    assert first_position(moved, None, ELSEWHERE) == T[1]
    moved.save(T[2])
    assert first_position(store_of(path), None, ELSEWHERE) == T[2]
    assert first_position(kind(path, moved_from=HERE), None, ELSEWHERE) == T[2]  # said again
    with pytest.raises(InvalidSettings, match="keeps the place in"):
        first_position(store_of(path), None, HERE)


@pytest.mark.parametrize("name", ["cursor", "cursor.db"])
def test_a_cursor_of_another_set_is_refused_though_only_the_query_names_it(tmp_path, name):
    path = tmp_path / name
    kept(path, f"{HERE}?set=1").save(T[1])
    kept(path, f"{HERE}?access_token=secret&set=1&from={T[1]}")
    with pytest.raises(InvalidSettings, match=r"x\.xml\?set=1, not in .*x\.xml\?set=2: take"):
        kept(path, f"{HERE}?set=2")


def test_the_mend_of_a_database_says_that_it_is_for_all_cursors_and_can_be_pasted(tmp_path):
    path = tmp_path / "a user's.db"
    kept(path, HERE).save(T[1])
    with pytest.raises(InvalidSettings) as raised:
        kept(path, ELSEWHERE)
    _, _, mend = raised.value.problems[0].partition("forget the addresses of all its cursors: ")
    command, file, statement = shlex.split(mend)
    assert (command, file) == ("sqlite3", str(path))
    with closing(sqlite3.connect(file)) as database:
        database.executescript(statement)
    assert first_position(store_of(path), None, ELSEWHERE) == T[1]


@pytest.mark.parametrize("name", ["cursor", "cursor.db"])
def test_a_cursor_that_says_no_address_is_taken_and_marked_when_it_moves(tmp_path, name):
    path = tmp_path / name
    old = store_of(path)
    assert old is not None
    old.save(T[1])
    kept(path, ELSEWHERE)  # where nothing was followed
    kept(path, HERE).save(T[2])
    with pytest.raises(InvalidSettings, match="not in"):
        kept(path, ELSEWHERE)


def kept(path: Path, url: str) -> CursorStore:
    """A store that is opened to follow this address."""
    store = store_of(path)
    assert store is not None
    first_position(store, None, url)
    return store


def test_a_database_of_before_addresses_were_kept_is_taken(tmp_path):
    with closing(sqlite3.connect(tmp_path / "cursor.db")) as database:
        database.execute("CREATE TABLE cursor (name PRIMARY KEY, position)")
        database.execute("INSERT INTO cursor VALUES ('cursor', ?)", (str(T[1]),))
        database.commit()
    assert first_position(store_of(tmp_path / "cursor.db"), None, HERE) == T[1]


def test_a_database_of_an_application_keeps_its_own_tables(tmp_path):
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE source (id INTEGER, title TEXT)")
        database.execute("INSERT INTO source VALUES (1, 'theirs')")
        database.commit()
        kept(path, HERE).save(T[1])
        with pytest.raises(InvalidSettings, match="not in") as raised:
            kept(path, ELSEWHERE)
        database.executescript(shlex.split(raised.value.problems[0])[-1])
        assert kept(path, ELSEWHERE).load() == T[1]
        assert database.execute("SELECT * FROM source").fetchall() == [(1, "theirs")]


def test_two_functions_keep_a_cursor_for_every_address():
    for url in (HERE, ELSEWHERE):
        assert first_position(store_of((lambda: str(T[1]), str)), None, url) == T[1]


def test_a_store_of_the_callers_own_may_refuse_another_address_too(tmp_path):
    class Own:
        """The place, and the address, in a file whatever its name."""

        def __init__(self) -> None:
            file = FileCursor(tmp_path / "cursor.db")
            self.keep_for, self.load, self.save = file.keep_for, file.load, file.save

    first_position(own := Own(), None, HERE)
    own.save(T[1])
    with pytest.raises(InvalidSettings, match="not in"):
        first_position(Own(), None, ELSEWHERE)


@pytest.mark.parametrize(
    "changes",
    [
        lambda path: follow(ELSEWHERE, cursor=path),
        lambda path: follow("http://b.example", sets=["x.xml"], cursor=path),
    ],
)
def test_who_follows_is_told_before_anything_is_asked(tmp_path, changes):
    path = tmp_path / "cursor.db"
    for name in ("cursor", "x.xml"):
        store = SqliteCursor(path, name)
        store.keep_for(HERE)
        store.save(T[1])
    with pytest.raises(InvalidSettings, match=f"keeps the place in {HERE}, not in"):
        next(changes(path))


def followed(number: int) -> list[FollowedChange]:
    return [FollowedChange(str(number), "updated")]


async def test_what_is_handed_on_ends_with_what_is_followed():
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async with asyncio.timeout(20):
        assert [change.loc async for change in handed_on(numbers(), followed)] == ["1", "2"]


@pytest.mark.parametrize("read_before", [0, 1])
async def test_who_follows_is_cancelled_with_the_task_that_reads(read_before):
    """As by a program that cancels all its tasks but the one that does it."""

    async def numbers() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    async with asyncio.timeout(20), aclosing(handed_on(numbers(), followed)) as changes:
        for _ in range(read_before):
            await anext(changes)
        following = asyncio.ensure_future(anext(changes))
        while len(tasks := asyncio.all_tasks() - {asyncio.current_task(), following}) == 0:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following


def test_a_cursor_is_kept_by_two_functions():
    kept: list[str] = []
    store = store_of((lambda: kept[-1] if kept else None, kept.append))
    assert store is not None
    assert store.load() is None
    store.save(T[1])
    assert (kept, store.load()) == ([str(T[1])], T[1])


def test_a_cursor_file_in_a_directory_that_is_not_there_is_bad_use(tmp_path):
    assert FileCursor(tmp_path / "cursor").load() is None
    with pytest.raises(InvalidSettings, match=r"none is not there: make it first"):
        FileCursor(tmp_path / "none" / "cursor").load()


def test_a_cursor_file_that_holds_something_else_is_bad_use(tmp_path):
    (tmp_path / "cursor").write_text("yesterday")
    with pytest.raises(InvalidSettings, match=rf"^cursor {tmp_path}/cursor: .* full datetime"):
        FileCursor(tmp_path / "cursor").load()


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("2013", "2013-01-01T00:00:00.000000Z"),
        ("2013-05", "2013-05-01T00:00:00.000000Z"),
        ("2013-05-06", "2013-05-06T00:00:00.000000Z"),
        ("2013-05-06T07:08:09+01:00", "2013-05-06T06:08:09.000000Z"),
    ],
)
def test_a_time_of_any_granularity_is_a_position(text, full):
    assert str(position_of(text)) == full


@pytest.mark.parametrize("text", ["", "noon", "2013-13", None])
def test_what_is_no_time_is_no_position(text):
    assert position_of(text) is None


def test_a_change_without_a_time_has_that_of_the_one_before_it():
    updated = Md(change="updated")
    entries = [
        Entry("a", md=Md(change="updated", datetime="2013-01-03T11:00:00Z")),
        Entry("b", md=updated),
        Entry("c", lastmod="2000-01-01", md=updated),
        Entry("d", lastmod="2013-01-03T12:00:00Z", md=updated),
    ]
    times = [str(time)[11:13] for time, _ in timed_changes(entries, None, pytest.fail)]
    assert times == ["11", "11", "11", "12"]


NOTIFICATION = f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">{{}}</urlset>'


def test_what_of_a_notification_cannot_be_read_is_skipped_and_named(caplog):
    mds = ('change="changed"', 'change="updated"', 'change="updated" datetime="tomorrow"')
    entries = "".join(f"<url><loc>http://a/{md[8]}</loc><rs:md {md}/></url>" for md in mds)
    text = (
        f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">'
        f'<rs:md capability="change-notification" from="{T[0]}" until="{T[1]}"/>{entries}</urlset>'
    )
    found = read_notification(text)
    assert [(change.loc, change.datetime) for change in found.changes] == [("http://a/u", None)] * 2
    said = "skipped of a notification: 'http://a/c': change is 'changed'; 2 in all"
    assert caplog.messages == [said]


AHEAD = {  # from, until and the time of the change; what is believed
    "nothing is ahead": ((1, 2, 2), (1, 2, [2], True)),
    "its end": ((1, 9, 2), (1, 2, [2], True)),
    "its end, without a change": ((1, 9, None), (1, 1, [], True)),
    "both": ((8, 9, 2), (2, 2, [2], False)),
    "all": ((1, 9, 9), (1, 1, [1], True)),
}


@pytest.mark.parametrize("what", AHEAD)
def test_of_a_notification_no_time_is_believed_that_has_not_come(what):
    (begin, end, at), (*expected,) = AHEAD[what]
    entry = f'<url><loc>http://a/</loc><rs:md change="updated" datetime="{T[at or 0]}"/></url>'
    text = (
        f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}"><rs:md capability="change-notification" '
        f'from="{T[begin]}" until="{T[end]}"/>{entry if at else ""}</urlset>'
    )
    said: list[str] = []
    found = read_notification(text, said.append, lambda time: time > str(T[7]))
    places = [T.index(each) for each in found.positions]
    assert [T.index(found.from_), T.index(found.until), places, found.joins] == expected
    assert [what != "nothing is ahead"] == ["which has not come yet" in "".join(said)]


def test_a_notification_of_0_8_has_its_changes_times_only():
    time = "<lastmod>2013-01-01T00:00:00Z</lastmod>"
    entry = f'<url><loc>http://a/</loc>{time}<rs:md change="updated"/></url>'
    found = read_notification(NOTIFICATION.format(entry))
    assert (found.joins, str(found.until)) == (False, "2013-01-01T00:00:00.000000Z")


def test_a_notification_without_any_time_cannot_be_read():
    entry = '<url><loc>http://a/</loc><rs:md change="updated"/></url>'
    with pytest.raises(Rejected, match="neither an interval"):
        read_notification(NOTIFICATION.format(entry))


def test_what_came_from_a_list_can_be_printed_as_one():
    found = Received(b"", T[0], T[1], (Change("http://a/", "updated", str(T[1])),), (T[1],))
    assert b"<loc>http://a/</loc>" in rendered(found)


def test_a_channel_is_resumed_with_from_beside_its_own_query():
    assert resumed("ws://a/b?x=1&from=2", T[0]) == f"ws://a/b?x=1&from={T[0]}"
    assert resumed("ws://a/b", None) == "ws://a/b"


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_put_together_from_their_lines_however_these_end_and_are_cut(mark, end):
    lines = ("data: é", "data:b", "", ": comment", "", "id: 1", "data", "data: c", "", "data: d")
    stream = (mark + end.join(lines)).encode()
    for length in (*range(1, 8), len(stream)):
        events = Events()
        pieces = (stream[at : at + length] for at in range(0, len(stream), length))
        found = [each for piece in pieces for each in events.take(piece)]
        assert found == ["é\nb", "\nc"], length


def test_an_event_of_very_many_lines_without_content_does_not_grow_for_ever(monkeypatch):
    monkeypatch.setattr(live, "NOTIFICATION_BYTES", 1_000)
    events = Events()
    with pytest.raises(Lost, match="longer than 1000 bytes"):
        deque((each for _ in range(1_000) for each in events.take(b"data:\n")), maxlen=0)
