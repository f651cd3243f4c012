"""A set with filters says of each change what its resource was, where that was something else."""

import random

import pytest

from rsnotify.coordination import keys
from rsnotify.errors import NoSuchSet
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.change_filter import FORMER
from rsnotify.resourcesync.notification import ChannelName, Row, render_notification
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets

CHANNEL = ChannelName("a", "change")
A, B = "http://example.com/a?x=1&y=2", "http://example.com/b"
PDF, HTML = "application/pdf", "text/html"
TYPES = (None, PDF, HTML, "image/png", "x-odd/thing; q=1", "model/stl")
ONE, TWO = "http://example.com/one?a=1&b=2", "http://example.com/two"
KINDS = ("created", "updated", "updated", "deleted")


@pytest.fixture
async def journal(client: Client) -> JournalStore:
    await Sets(client).add("a", SetOptions())
    return JournalStore(client, window_changes=10_000)


def changes_of(rows: list[Row] | tuple[Row, ...]) -> list[Change]:
    found = render_notification(CHANNEL, Position(0), rows, base_url="http://hub")
    return [change_of(entry) for entry in parse_document(found.payload).entries]


def said(change: Change) -> tuple[str | None, set[str]] | None:
    """What a change says that its resource was."""
    former = [link for link in change.links if link.rel == FORMER]
    if not former:
        return None
    return former[0].type, {link.href for link in former} - {change.loc}


def described(change: Change) -> tuple[str | None, list[str]]:
    return change.type, [link.href for link in change.links if link.rel == "collection"]


def collections(*targets: str) -> tuple[Link, ...]:
    return tuple(Link(rel="collection", href=each, type=HTML) for each in targets)


async def publish(journal: JournalStore, *changes: Change) -> list[Change]:
    """What the process has in memory, which is what stands in the journal."""
    stored = await journal.append(CHANNEL, Submission([fragment_of(each) for each in changes]))
    rows = await journal.read(CHANNEL, stored.from_, until=stored.until, count=10_000)
    assert rows == [*stored.rows]
    return changes_of(rows)


async def test_nothing_is_said_in_a_set_without_filters(journal):
    await publish(journal, Change(A, "created", type=PDF))
    (change,) = await publish(journal, Change(A, "updated", type=HTML))
    assert said(change) is None


async def test_a_change_says_what_its_resource_was(journal):
    await journal.say_former(CHANNEL)
    await publish(journal, Change(A, "created", type=PDF, links=collections(ONE, TWO)))
    (same,) = await publish(
        journal, Change(A, "updated", type=PDF, hash="md5:" + "0" * 32, links=collections(ONE, TWO))
    )
    (typed,) = await publish(journal, Change(A, "updated", type=HTML, links=collections(ONE, TWO)))
    (moved,) = await publish(journal, Change(A, "updated", type=HTML, links=collections(TWO)))
    (gone,) = await publish(journal, Change(A, "deleted"))
    (again,) = await publish(journal, Change(A, "deleted"))
    assert list(map(said, (same, typed, moved, gone, again))) == [
        None,
        (PDF, {ONE, TWO}),
        (HTML, {ONE, TWO}),
        (HTML, {TWO}),
        None,
    ]


async def test_what_a_resource_was_is_no_part_of_what_it_is(journal, client):
    await journal.say_former(CHANNEL)
    await publish(journal, Change(A, "created", type=PDF), Change(A, "updated", type=HTML))
    shards = [await client.hgetall(keys.state("a") + str(n)) for n in range(keys.STATE_SHARDS)]
    (kept,) = (value for shard in shards for value in shard.values())
    assert FORMER.encode() not in kept


async def test_a_source_cannot_say_what_its_resources_were(journal):
    await journal.say_former(CHANNEL)
    links = (Link(rel=FORMER, href=ONE, type=PDF), Link(rel="up", href=TWO))
    (change,) = await publish(journal, Change(A, "created", links=links))
    assert [link.rel for link in change.links] == ["up"]


async def test_it_is_said_from_one_position_on_however_often_that_is_asked(journal):
    since = await journal.say_former(CHANNEL)
    await publish(journal, Change(A, "created", type=PDF))
    assert await journal.say_former(CHANNEL) == since
    with pytest.raises(NoSuchSet):
        await journal.say_former(ChannelName("b", "change"))


@pytest.mark.parametrize("seed", range(8))
async def test_of_any_history_each_change_says_what_was_before_it(journal, seed):
    chance = random.Random(seed)
    await journal.say_former(CHANNEL)
    known: dict[str, tuple[str | None, list[str]]] = {}
    at = 0
    for _ in range(40):
        changes = [
            Change(
                chance.choice((A, B, "http://example.com/c")),
                chance.choice(KINDS),
                type=chance.choice(TYPES),
                length=chance.choice((None, 5)),
                encoding=chance.choice((None, None, "gzip")),
                links=chance.choice(((), collections(ONE), collections(TWO, ONE))),
                datetime=chance.choice((None, None, f"2026-01-01T00:00:{(at := at + 1) % 60:02}Z")),
            )
            for _ in range(chance.choice((1, 1, 5)))
        ]
        for asked, change in zip(changes, await publish(journal, *changes), strict=True):
            before = known.pop(asked.loc, None)
            is_gone, now = asked.change == "deleted", described(asked)
            expected = before if before is not None and (is_gone or before != now) else None
            found = said(change)
            assert found == (expected and (expected[0], set(expected[1])))
            if not is_gone:
                known[asked.loc] = now
