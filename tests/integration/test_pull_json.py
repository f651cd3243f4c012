"""Documents in JSON: the same as in XML, in the form in which one publishes."""

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rsnotify.journal.submission import Submission
from rsnotify.publishing.bodies import read_submission
from rsnotify.redis_client import Client
from rsnotify.resourcesync.xml_reader import change_of
from tests.support.jsonform import told
from tests.support.pulling import CHANGES, SET, Answer, Pulling, loc

OPEN = f"/{SET}/changelist.xml"
RESOURCES = f"/{SET}/resourcelist.xml"
INDEX = f"/{SET}/changelist-index.xml"
JSON, NDJSON = "application/json", "application/x-ndjson"

PUBLISHED = [
    {
        "loc": loc("a?x=1&y=2"),
        "change": "created",
        "length": 0,
        "type": "text/html",
        "encoding": 'a"\\&<',
    },
    {"loc": loc("b"), "change": "updated", "hash": "md5:" + "a1" * 16, "lastmod": "2026-01-01"},
    {"loc": loc("c"), "change": "deleted"},
    {
        "loc": loc("d"),
        "change": "updated",
        "changefreq": "daily",
        "priority": 0.8,
        "encoding": "gzip",
        "links": [{"rel": "duplicate", "href": "http://m.org/d", "pri": 1, "length": 7}],
    },
]


@pytest.fixture
async def pulling(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[Pulling]:
    """A hub with one set, whose windows hold three changes, with a few changes in it."""
    async with Pulling(client, changes=3, **getattr(request, "param", {})) as found:
        body = json.dumps(PUBLISHED).encode()
        fragments = read_submission("change", body, JSON, None).fragments
        await found.hub.publish(CHANGES, Submission(fragments))
        yield found


async def begin(pulling: Pulling) -> str:
    return str((await pulling.windows.record(SET)).created)


def as_json(answer: Answer) -> dict[str, Any]:
    assert (answer.status, answer.headers["content-type"]) == (200, JSON), answer.body
    return told(answer.body)


def as_lines(answer: Answer) -> list[dict[str, Any]]:
    assert (answer.status, answer.headers["content-type"]) == (200, NDJSON), answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


async def test_a_change_list_gives_back_what_was_published(pulling):
    path = f"{OPEN}?from={await begin(pulling)}"
    found = as_json(await pulling.get(path, accept=JSON))
    times = [change["datetime"] for change in found["changes"]]
    assert sorted(times) == times
    assert found["changes"] == [
        {"lastmod": at} | change | {"datetime": at}
        for at, change in zip(times, PUBLISHED, strict=True)
    ]


async def test_it_can_be_published_again_as_it_is(pulling):
    lines = (await pulling.get(f"{OPEN}?from={await begin(pulling)}", accept=NDJSON)).body
    again = read_submission("change", lines, NDJSON, None)
    assert len(again.fragments) == len(PUBLISHED)


PATHS = (OPEN, f"{OPEN}?limit=1", RESOURCES, f"{RESOURCES}?limit=2", INDEX)
DISCOVERY = ("/.well-known/resourcesync", f"/{SET}/capabilitylist.xml")


@pytest.mark.parametrize("path", [*PATHS, *DISCOVERY, "closed", "archived page", "after"])
async def test_every_document_says_in_json_what_it_says_in_xml(pulling, path):
    await pulling.upkeep.snapshots.take(SET)
    named = {
        "closed": f"/{SET}/changelist/{await begin(pulling)}.xml",
        "archived page": f"/{SET}/changelist/{await begin(pulling)}.xml?limit=2",
        "after": f"{OPEN}?from={await begin(pulling)}",
    }
    path = named.get(path, path)
    found = as_json(await pulling.get(path, accept=JSON))
    document = await pulling.document(path)
    md = document.md
    assert md is not None
    names = ("capability", "from", "until", "at", "completed")
    in_xml = (md.capability, md.from_, md.until, md.at, md.completed)
    assert [found.get(name) for name in names] == list(in_xml)
    assert [(ln["rel"], ln["href"]) for ln in found["links"]] == [
        (ln.rel, ln.href) for ln in document.links
    ]
    (entries,) = (found[name] for name in ("changes", "resources", "documents") if name in found)
    assert [entry["loc"] for entry in entries] == [entry.loc for entry in document.entries]
    for entry, in_list in zip(entries, document.entries, strict=True):
        change = change_of(in_list)
        for name in ("lastmod", "datetime", "hash", "length", "type", "encoding"):
            assert entry.get(name) == getattr(change, name)


async def test_a_link_to_the_next_page_keeps_the_format(pulling):
    path = f"{OPEN}?from={await begin(pulling)}&limit=1&format=json"
    seen = []
    while path:
        found = as_json(await pulling.get(path))
        seen += [change["loc"] for change in found["changes"]]
        path = next((ln["href"] for ln in found["links"] if ln["rel"] == "next"), "")
    assert seen == [change["loc"] for change in PUBLISHED]


async def test_a_link_never_repeats_a_token(pulling):
    path = f"{OPEN}?from={await begin(pulling)}&limit=1&access_token=rsn_x"
    assert b"rsn_x" not in (await pulling.get(path)).body


async def test_lines_say_in_headers_what_is_not_an_entry(pulling):
    path = f"{OPEN}?from={await begin(pulling)}&limit=2"
    answer = await pulling.get(path, accept=NDJSON)
    document = await pulling.document(path)
    assert document.md is not None
    assert answer.headers["rsnotify-from"] == document.md.from_
    assert answer.headers["rsnotify-until"] == document.md.until
    (following,) = (link.href for link in document.links if link.rel == "next")
    assert f'<{following}>; rel="next"' in answer.headers["link"]
    assert len(as_lines(answer)) == 2


@pytest.mark.parametrize(
    "pulling", [{"part_resources": 1, "slice_resources": 1}], indirect=True, ids=[""]
)
async def test_a_large_resource_list_is_one_stream_of_lines(pulling):
    await pulling.upkeep.snapshots.take(SET)
    answer = await pulling.get(RESOURCES, accept=NDJSON)
    assert {each["loc"] for each in as_lines(answer)} == {loc("a?x=1&y=2"), loc("b"), loc("d")}
    assert answer.headers["rsnotify-at"]
    assert "documents" in as_json(await pulling.get(RESOURCES, accept=JSON))


async def test_an_empty_list_has_no_line(client):
    async with Pulling(client) as pulling:
        assert (await pulling.get(OPEN, accept=NDJSON)).body == b""
        assert as_json(await pulling.get(OPEN, accept=JSON))["changes"] == []


@pytest.mark.parametrize("form", ["json", "ndjson"])
@pytest.mark.parametrize("path", PATHS[:4])
async def test_each_form_has_its_own_tag_and_compression(pulling, path, form):
    await pulling.upkeep.snapshots.take(SET)
    named = f"{path}{'&' if '?' in path else '?'}format={form}"
    answer, in_xml = await pulling.get(named), await pulling.get(path)
    tag = answer.headers["etag"]
    assert tag != in_xml.headers["etag"]
    assert (await pulling.get(named, if_none_match=tag)).status == 304
    assert (await pulling.get(path, if_none_match=tag)).status == 200
    assert "accept," in answer.headers["vary"]
    assert "accept," in in_xml.headers["vary"]
    packed = await pulling.get(named, accept_encoding="gzip")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == answer.body
    assert (await pulling.get(named, method="HEAD")).headers["etag"] == tag


@pytest.mark.parametrize("accept", ["*/*", "text/html", "application/xml", JSON + ";q=0.1, */*"])
async def test_everybody_else_gets_xml(pulling, accept):
    answer = await pulling.get(OPEN, accept=accept)
    assert answer.headers["content-type"] == "application/xml"
    assert answer.document.entries


async def test_a_format_that_does_not_exist_is_refused(pulling):
    answer = await pulling.get(f"{OPEN}?format=yaml")
    assert (answer.status, b"xml or json or ndjson" in answer.body) == (400, True)
    assert (await pulling.get(f"{INDEX}?format=ndjson")).status == 400
