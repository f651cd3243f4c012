"""Sources as they were before 1.0, and topics at a Source's own address: followed and mirrored."""

from contextlib import aclosing

import pytest

from clients.python.tests.client.test_follow import read
from clients.python.tests.mirror.test_mirror import files, once
from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.xml_writer import DRAFT_NS, RS_NS, Document, Entry, Md, render_document
from rsnotify_client import follow_async
from rsnotify_client.discovery import MAX_SETS_ASKED, discover
from rsnotify_client.web import Web
from rsnotify_mirror.audit import audit
from tests.support.sources import CAPABILITIES, Source, digest, rendered

DAY = "2012-10-31T{:02}:00:00Z".format


def draft(
    capability: str, *entries: Entry, modified: str | None = None, links: tuple[Link, ...] = ()
) -> bytes:
    """A document in the namespace of January 2013."""
    md = Md(capability=capability, modified=modified)
    document = render_document(Document("urlset", md, links, entries))
    return document.replace(RS_NS.encode(), DRAFT_NS.encode())


def resource(
    source: Source, name: str, content: bytes, at: str, change: str | None = None
) -> Entry:
    md = Md(change=change, hash=digest(content), length=len(content))
    return Entry(source.loc(name), at, md=md)


@pytest.fixture
def old_source(source: Source) -> Source:
    """Its Change List tells the newest change first, as that of the draft's Figure 6 does."""
    capabilities = ("resourcelist", "changelist")
    entries = (Entry(source.loc(f"{each}.xml"), md=Md(capability=each)) for each in capabilities)
    source.documents[CAPABILITIES] = draft("capabilitylist", *entries)
    source.resources |= {"/a": b"newest", "/b": b"as listed", "/c": b"created"}
    source.documents["/resourcelist.xml"] = draft(
        "resourcelist",
        resource(source, "a", b"oldest", DAY(1)),
        resource(source, "b", b"as listed", DAY(1)),
        resource(source, "d", b"deleted", DAY(1)),
        modified=DAY(2),
    )
    top = Link("top", source.url + CAPABILITIES)
    source.documents["/changelist.xml"] = draft(
        "changelist",
        Entry(source.loc("d"), DAY(6), md=Md(change="deleted")),
        resource(source, "a", b"newest", DAY(5), "updated"),
        resource(source, "c", b"created", DAY(4), "created"),
        resource(source, "a", b"older", DAY(3), "updated"),
        modified=DAY(6),
        links=(top,),
    )
    return source


async def test_a_draft_of_2013_is_mirrored_and_audited(old_source, tmp_path):
    ran = await once(old_source, tmp_path)
    assert ran.is_whole, ran.problems()
    assert files(tmp_path) == {"a": b"newest", "b": b"as listed", "c": b"created"}
    assert (await audit(old_source.url + CAPABILITIES, tmp_path)).is_in_sync


async def test_a_draft_of_2013_is_followed_in_the_order_of_its_changes(old_source):
    for address in (CAPABILITIES, "/changelist.xml"):
        found = await read(old_source.url + address, 4, after=DAY(2))
        assert [name for _, name in found] == ["a", "c", "a", "d"]
        assert found[-1] == ("deleted", "d")


@pytest.mark.parametrize("sets", [1, 2])
async def test_an_index_of_capability_lists_leads_to_them(source, sets):
    lists = tuple(f"list{number}.xml" for number in range(sets))
    entries = tuple(Entry(source.loc(name)) for name in lists)
    source.documents["/index.xml"] = render_document(
        Document("sitemapindex", Md(capability="capabilitylist"), (), entries)
    )
    listed = Entry(source.loc("r.xml"), md=Md(capability="resourcelist"))
    source.documents |= {f"/{name}": rendered("capabilitylist", [listed]) for name in lists}
    async with Web() as session:
        if sets == 1:
            found = await discover(session, source.loc("index.xml"))
            assert (found.url, found.resourcelist) == (source.loc(lists[0]), source.loc("r.xml"))
        else:
            with pytest.raises(Rejected, match=r"offers 2 sets of resources: give .*list1\.xml"):
                await discover(session, source.loc("index.xml"))


@pytest.mark.parametrize(
    ("start", "is_in_head"), [("/news", True), ("/news", False), (CAPABILITIES, True)]
)
async def test_a_topic_at_the_sources_own_address_is_followed_by_its_hub(
    hub, source, start, is_in_head
):
    topic = source.loc("news")
    status, _ = await hub.ask("PATCH", "/api/sets/dataset1", json={"topic": topic})
    assert status < 300
    head = {"Link": f'<{topic}>; rel="self", <{hub.url}/hub>; rel="hub"'} if is_in_head else {}
    links = f'<link rel="hub" href="{hub.url}/hub"><link rel=self href="/news">'
    text = "<html>" if is_in_head else links

    source.answer("/news", text, content_type="text/html", headers=head)
    named = Entry(
        topic, md=Md(capability="change-notification"), links=(Link("hub", f"{hub.url}/hub"),)
    )
    source.documents[CAPABILITIES] = rendered("capabilitylist", [named])
    first = await hub.publish("http://example.com/first")
    await hub.publish("http://example.com/second")
    async with aclosing(follow_async(source.url + start, position=first["until"])) as changes:
        assert (await anext(changes)).loc == "http://example.com/second"


@pytest.mark.parametrize("before", [0, MAX_SETS_ASKED - 1, MAX_SETS_ASKED])
async def test_a_topic_is_looked_for_in_so_many_sets_of_all_source_descriptions(
    source, before, caplog
):
    topic = source.loc("news")
    source.answer(
        "/news", "x", headers={"Link": f'<{topic}>; rel="self", <{source.loc("hub")}>; rel="hub"'}
    )
    parts = tuple(Entry(source.loc(name)) for name in ("d1.xml", "none.xml", "d2.xml"))
    source.documents["/.well-known/resourcesync"] = render_document(
        Document("sitemapindex", Md(capability="description"), (), parts)
    )
    others = [Entry(source.loc(f"other{number}.xml")) for number in range(before)]
    source.documents["/d1.xml"] = rendered("description", others)
    source.documents["/d2.xml"] = rendered("description", [Entry(source.loc("list.xml"))])
    named = Entry(topic, md=Md(capability="change-notification"))
    source.documents["/list.xml"] = rendered("capabilitylist", [named])
    is_asked = before < MAX_SETS_ASKED
    async with Web() as session:
        if is_asked:
            assert (await discover(session, topic)).topic == topic
        else:
            with pytest.raises(Rejected):
                await discover(session, topic)
    assert ("has more than 100 sets" in caplog.text) is not is_asked


@pytest.mark.parametrize("more", [0, 1])
async def test_of_more_source_descriptions_than_are_read_it_is_said(source, more, caplog):
    topic = source.loc("news")
    source.answer(
        "/news", "x", headers={"Link": f'<{topic}>; rel="self", <{source.loc("hub")}>; rel="hub"'}
    )
    count = MAX_SETS_ASKED + more
    parts = tuple(Entry(source.loc(f"d{number}.xml")) for number in range(count))
    source.documents["/.well-known/resourcesync"] = render_document(
        Document("sitemapindex", Md(capability="description"), (), parts)
    )
    source.documents["/d0.xml"] = rendered("description", [Entry(source.loc("list.xml"))])
    named = Entry(topic, md=Md(capability="change-notification"))
    source.documents["/list.xml"] = rendered("capabilitylist", [named])
    async with Web() as session:
        assert (await discover(session, topic)).topic == topic
    assert ("has more than 100 sets" in caplog.text) is bool(more)
