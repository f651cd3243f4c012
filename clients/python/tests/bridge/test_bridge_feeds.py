"""`rsnotify bridge` from feeds and from collections of Activity Streams."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from feedgen.feed import FeedGenerator

from tests.support.sources import Source

DAY = datetime(2026, 11, 20, tzinfo=UTC)


def feed(source: Source, *entries: tuple[str, int], is_rss: bool = False) -> bytes:
    """Written by feedgen: each entry with the day of its change."""
    made = FeedGenerator()
    made.id(source.url)
    made.title("A feed")
    made.link(href=source.url)
    made.description("Of changes")
    for name, day in entries:
        entry = made.add_entry(order="append")
        entry.id(source.loc(name))
        entry.guid(source.loc(name), permalink=True)
        entry.title(name)
        entry.link(href=source.loc(name))
        entry.updated(DAY + timedelta(days=day))
        entry.pubDate(DAY + timedelta(days=day))
    return bytes(made.rss_str() if is_rss else made.atom_str())


@pytest.mark.parametrize("is_rss", [False, True])
async def test_a_feed_is_followed(source, bridging, is_rss):
    bridging.hub.add_set(bridging.set_name + str(is_rss).lower())
    bridging.set_name += str(is_rss).lower()
    source.documents["/feed"] = feed(source, ("b", 1), ("a", 0), is_rss=is_rss)
    facts = await bridging.once(source.loc("feed"))
    assert (facts.error, facts.skipped, bridging.count()) == (None, None, 2)
    source.documents["/feed"] = feed(source, ("a", 3), ("c", 2), ("b", 1), is_rss=is_rss)
    facts = await bridging.once(source.loc("feed"))
    assert (facts.error, facts.skipped) == (None, None)
    assert bridging.told() == [("created", "c"), ("updated", "a")]


async def test_what_leaves_a_feed_is_not_gone_and_what_may_be_missing_is_said(source, bridging):
    source.documents["/feed"] = feed(source, ("b", 1), ("a", 0))
    await bridging.once(source.loc("feed"))
    source.documents["/feed"] = feed(source, ("d", 4), ("c", 3))
    facts = await bridging.once(source.loc("feed"))
    assert bridging.told() == [("created", "c"), ("created", "d")]
    assert "does not reach back" in (facts.skipped or "")


async def test_an_old_entry_that_is_pinned_does_not_hide_the_pages_behind_it(source, bridging):
    source.documents["/feed"] = feed(source, ("pinned", -900), ("a", 0))
    await bridging.once(source.loc("feed"))
    first = feed(source, ("pinned", -900), ("d", 5), ("c", 4))
    source.documents["/feed"] = first.replace(b"<entry>", b'<link rel="next" href="2"/><entry>', 1)
    source.documents["/2"] = feed(source, ("b", 3), ("a", 0))
    facts = await bridging.once(source.loc("feed"))
    assert (facts.skipped, bridging.told()) == (None, [("created", each) for each in "bcd"])


async def test_a_feed_that_lists_the_oldest_first_reaches_back_as_far_as_it_does(source, bridging):
    source.documents["/feed"] = feed(source, ("a", 0), ("b", 1))
    await bridging.once(source.loc("feed"))
    source.documents["/feed"] = feed(source, ("a", 0), ("b", 1), ("c", 2))
    facts = await bridging.once(source.loc("feed"))
    assert (facts.skipped, bridging.told()) == (None, [("created", "c")])


async def test_tombstones_delete(source, bridging):
    source.documents["/feed"] = feed(source, ("b", 1), ("a", 0))
    await bridging.once(source.loc("feed"))
    tombstone = (
        f'<at:deleted-entry xmlns:at="http://purl.org/atompub/tombstones/1.0" '
        f'ref="{source.loc("b")}" when="2026-11-22T00:00:00Z"/></feed>'
    )
    body = feed(source, ("a", 0)).replace(b"</feed>", tombstone.encode())
    source.documents["/feed"] = body
    await bridging.once(source.loc("feed"))
    assert bridging.told() == [("deleted", "b")]


def tombstone(source: Source, name: str, day: int) -> bytes:
    when = (DAY + timedelta(days=day)).isoformat()
    at = 'xmlns:at="http://purl.org/atompub/tombstones/1.0"'
    return f'<at:deleted-entry {at} ref="{source.loc(name)}" when="{when}"/>'.encode()


async def test_a_tombstone_counts_until_the_entry_is_there_again(source, bridging):
    """As RFC 6721 has it, the tombstones stand before all entries."""
    source.documents["/feed"] = feed(source, ("b", 1), ("a", 0))
    await bridging.once(source.loc("feed"))
    stone = tombstone(source, "b", 2) + b"<entry>"
    for entries in ((("c", 3), ("a", 0)), (("b", 5), ("c", 3), ("a", 0))):
        source.documents["/feed"] = feed(source, *entries).replace(b"<entry>", stone, 1)
        await bridging.once(source.loc("feed"))
    assert bridging.told() == [("created", "c"), ("deleted", "b"), ("created", "b")]


async def test_a_tombstone_of_an_entry_that_came_back_and_left_the_feed_deletes_nothing(
    source, bridging
):
    source.documents["/feed"] = feed(source, ("b", 3), ("a", 0))
    await bridging.once(source.loc("feed"))
    body = feed(source, ("c", 4), ("a", 0))
    source.documents["/feed"] = body.replace(b"<entry>", tombstone(source, "b", 2) + b"<entry>", 1)
    await bridging.once(source.loc("feed"))
    assert bridging.told() == [("created", "c")]


async def test_a_tombstone_in_whole_seconds_deletes_what_changed_in_its_second(source, bridging):
    body = feed(source, ("b", 2), ("a", 0))
    source.documents["/feed"] = body.replace(b"2026-11-22T00:00:00", b"2026-11-22T00:00:00.5")
    await bridging.once(source.loc("feed"))
    body = feed(source, ("c", 3), ("a", 0))
    source.documents["/feed"] = body.replace(b"<entry>", tombstone(source, "b", 2) + b"<entry>", 1)
    await bridging.once(source.loc("feed"))
    assert bridging.told() == [("created", "c"), ("deleted", "b")]


async def test_an_entry_of_the_next_century_is_deleted_by_a_tombstone_of_today(source, bridging):
    source.documents["/feed"] = feed(source, ("b", 40_000), ("a", 0))
    await bridging.once(source.loc("feed"))
    body = feed(source, ("a", 0))
    source.documents["/feed"] = body.replace(b"<entry>", tombstone(source, "b", 2) + b"<entry>", 1)
    await bridging.once(source.loc("feed"))
    assert bridging.told() == [("deleted", "b")]


async def test_of_two_entries_of_one_resource_the_newer_counts_wherever_it_stands(source, bridging):
    source.documents["/feed"] = feed(source, ("a", 0))
    await bridging.once(source.loc("feed"))
    source.documents["/feed"] = feed(source, ("a", 0), ("a", 3))
    await bridging.once(source.loc("feed"))
    assert bridging.told() == [("updated", "a")]


async def test_what_leaves_a_feed_that_is_complete_is_gone(source, bridging):
    def complete(*entries: tuple[str, int]) -> bytes:
        mark = b'<fh:complete xmlns:fh="http://purl.org/syndication/history/1.0"/><entry>'
        return feed(source, *entries).replace(b"<entry>", mark, 1)

    source.documents["/feed"] = complete(("b", 1), ("a", 0))
    await bridging.once(source.loc("feed"))
    source.documents["/feed"] = complete(("a", 0))
    facts = await bridging.once(source.loc("feed"))
    assert (facts.error, bridging.told()) == (None, [("deleted", "b")])


async def test_an_entry_of_the_next_century_hides_none_after_it(source, bridging):
    one, two = f"{source.loc('one')}", f"{source.loc('two')}"
    pages = {
        "/one": activities(source, ("Create", "a", 40_000)),
        "/two": activities(source, ("Create", "b", 1), prev="one"),
    }
    source.documents |= pages
    source.documents["/all"] = json.dumps({"type": "OrderedCollection", "last": one}).encode()
    await bridging.once(source.loc("all"))
    source.documents["/all"] = json.dumps({"type": "OrderedCollection", "last": two}).encode()
    await bridging.once(source.loc("all"))
    assert bridging.told() == [("created", "b")]


async def test_entries_that_name_nothing_are_said(source, bridging):
    source.documents["/feed"] = (
        b"<rss><channel><item><title>x</title></item><item><link>"
        + source.loc("a").encode()
        + b"</link></item></channel></rss>"
    )
    facts = await bridging.once(source.loc("feed"))
    assert "neither a link nor a guid" in (facts.skipped or "")
    assert bridging.count() == 1


def activities(source: Source, *found: tuple[str, str, int], **links: str) -> bytes:
    items = [
        {"type": kind, "object": {"id": source.loc(name), "type": "Manifest"},
         "endTime": (DAY + timedelta(days=day)).isoformat()}
        for kind, name, day in found
    ]  # fmt: skip
    page = {"type": "OrderedCollectionPage", "orderedItems": items}
    named = {name: {"id": source.loc(path)} for name, path in links.items()}
    return json.dumps(page | named).encode()


async def test_activities_are_read_back_to_what_is_known(source, bridging):
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(body=pages[request.path], content_type="application/json")

    collection = {"type": "OrderedCollection", "last": {"id": source.loc("two")}}
    pages = {
        "/all": json.dumps(collection).encode(),
        "/one": activities(source, ("Create", "a", 0), ("Create", "b", 0)),
        "/two": activities(source, ("Update", "a", 1), ("Create", "c", 1), prev="one"),
        "/three": activities(source, ("Delete", "b", 2), ("Create", "d", 2), prev="two"),
    }
    source.handlers |= dict.fromkeys(pages, handler)
    facts = await bridging.once(source.loc("all"))
    assert (facts.error, facts.skipped, bridging.count()) == (None, None, 3)
    collection["last"] = {"id": source.loc("three")}
    pages["/all"] = json.dumps(collection).encode()
    asked.clear()
    await bridging.once(source.loc("all"))
    assert bridging.told() == [("deleted", "b"), ("created", "d")]
    assert "/one" not in asked


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"first": {"id": "one"}}, "last page"),
        ({"totalItems": 3}, "last page"),
        ({"totalItems": 0, "first": {"id": "one"}}, ""),
        ({}, ""),
    ],
)
async def test_a_collection_that_does_not_lead_to_its_activities_is_not_taken_for_an_empty_one(
    source, bridging, said, problem
):
    collection = {"type": "OrderedCollection"} | said
    source.documents["/all"] = json.dumps(collection).encode()
    facts = await bridging.once(source.loc("all"))
    assert problem in (facts.error or "")
    assert facts.is_well != bool(problem)


@pytest.mark.parametrize("view", ["feed.atom", "activities"])
async def test_a_view_of_a_set_that_is_followed_and_published_again_is_the_same(
    real_hub, bridging, view
):
    """Through all its pages, and without an echo."""
    bridging.set_name, origin = f"{view}-copy", f"{view}-origin"
    real_hub.add_set(bridging.set_name)
    real_hub.add_set(origin, iiif="Manifest")
    names = [f"a?b={number}&c=%C3%BC" for number in range(330)]

    def publish(change: str, *some: str) -> None:
        changes = [{"loc": f"http://example.com/{name}", "change": change} for name in some]
        real_hub.ask("POST", f"/api/sets/{origin}/changes", json.dumps(changes).encode())

    publish("created", *names)
    publish("deleted", names[5])
    feed = f"{real_hub.url}/{origin}/{view}"
    facts = await bridging.once(feed)
    assert (facts.error, facts.skipped) == (None, None)
    rest = [f"http://example.com/{name}" for name in names if name != names[5]]
    assert bridging.resources().keys() == {*rest}
    publish("updated", *names[100:330])
    publish("deleted", names[7])
    told = len(bridging.told())
    await bridging.once(feed)
    changed = bridging.told()[told:]
    assert sorted(changed) == sorted(
        [*(("updated", name) for name in names[100:330]), ("deleted", names[7])]
    )
    await bridging.once(feed)
    assert len(bridging.told()) == told + 231


async def test_two_entries_of_one_resource_whose_addresses_differ_in_writing_are_one(
    source, bridging, caplog
):
    """The set has one of them, and has lost none."""
    body = feed(source, ("a", 0), ("b", 1)).decode()
    for name, written in (("a", "ü"), ("b", "%C3%BC")):
        body = body.replace(f'href="{source.loc(name)}"', f'href="{source.loc(written)}"')
    source.documents["/feed"] = body.encode()
    for _ in range(2):
        assert (await bridging.once(source.loc("feed"))).is_well
    assert bridging.count() == 1
    assert "all is loaded again" not in caplog.text
