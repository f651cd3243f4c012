"""Conditions and compression of what can be pulled, header by header."""

import gc
import tracemalloc
from time import time

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from rsnotify.documents.responses import (
    KEY_BYTES,
    DocumentInfo,
    KeptDocuments,
    _last_modified,
    is_unchanged,
)
from rsnotify.resourcesync.forms import JSON, accepts_gzip
from rsnotify.resourcesync.xml_writer import Document, Md, render_document

SECOND = 1_000_000
NOON = 1_795_176_000  # Fri, 20 Nov 2026 12:00:00 GMT
KNOWN = DocumentInfo("tag", NOON * SECOND)


def unchanged(known: DocumentInfo = KNOWN, **headers: str) -> bool:
    return is_unchanged(
        Headers({name.replace("_", "-"): value for name, value in headers.items()}), known
    )


@pytest.mark.parametrize("tags", ['"tag"', 'W/"tag"', '"other", "tag"', '"a",W/"tag"', "*", " * "])
def test_a_tag_that_is_known_means_unchanged(tags):
    assert unchanged(if_none_match=tags)


@pytest.mark.parametrize("tags", ['"other"', "tag", "", '"ta"', 'W/"tag2"'])
def test_any_other_tag_does_not(tags):
    assert not unchanged(if_none_match=tags)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Fri, 20 Nov 2026 12:00:00 GMT", True),
        ("Fri, 20 Nov 2026 12:00:01 GMT", True),
        ("Fri, 20 Nov 2026 11:59:59 GMT", False),
        ("yesterday", False),
        ("", False),
    ],
)
def test_a_date_counts_from_the_second_of_the_last_change(date, expected):
    assert unchanged(if_modified_since=date) is expected


def test_a_tag_counts_alone():
    date = "Fri, 20 Nov 2026 12:00:01 GMT"
    assert not unchanged(if_none_match='"other"', if_modified_since=date)


def test_no_condition_means_changed():
    assert not unchanged()


def test_a_last_modified_of_this_very_second_matches_nothing():
    """Another change may still come in it."""
    now = int(time() * SECOND)
    for modified in (now, now // SECOND * SECOND):
        assert not unchanged(
            DocumentInfo("tag", modified), if_modified_since=_last_modified(modified)
        )


@pytest.mark.parametrize("modified", [NOON * SECOND, NOON * SECOND + 1, NOON * SECOND + 999_999])
def test_an_older_one_matches_until_the_next_second(modified):
    """A clock far in the future has no such: this one lies in the past."""
    past = modified - 10 * 365 * 86_400 * SECOND
    date = _last_modified(past)
    assert unchanged(DocumentInfo("tag", past), if_modified_since=date)
    assert not unchanged(DocumentInfo("tag", past + SECOND), if_modified_since=date)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=0.5", True),
        ("*", True),
        ("br, *;q=0.1", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0, gzip", True),
        ("", False),
    ],
)
def test_gzip_is_for_those_who_ask_for_it(asked, expected):
    assert accepts_gzip(asked) is expected


def test_who_asks_for_nothing_gets_no_gzip():
    assert not accepts_gzip(None)


# --- documents that are kept ---------------------------------------------------------------------

INDEX = Document(root="sitemapindex", entries=(), md=Md(capability="changelist"))
SIZE = len(render_document(INDEX)) + KEY_BYTES


class Rendering:
    """Counts how often the document is described, to be rendered."""

    def __init__(self, most_bytes: int = 1_000_000) -> None:
        self.times = 0
        self.kept = KeptDocuments(most_bytes)

    def write(self) -> bytes:
        self.times += 1
        return render_document(INDEX)

    async def times_for(self, info: DocumentInfo, encoding: bytes = b"identity") -> int:
        headers = [(b"accept-encoding", encoding)]
        request = Request({"type": "http", "method": "GET", "headers": headers})
        before = self.times
        await self.kept.respond(request, info, self.write)
        return self.times - before


@pytest.mark.parametrize(
    ("other", "encoding"),
    [
        (KNOWN._replace(tag="other"), b"identity"),
        (KNOWN._replace(link="http://other.example/capabilitylist.xml"), b"identity"),
        (KNOWN._replace(form=JSON), b"identity"),
        (KNOWN, b"gzip"),
    ],
)
async def test_a_kept_document_is_rendered_once_for_each_content_base_form_and_coding(
    other, encoding
):
    rendering = Rendering()
    assert [await rendering.times_for(KNOWN) for _ in range(3)] == [1, 0, 0]
    assert [await rendering.times_for(other, encoding) for _ in range(3)] == [1, 0, 0]
    assert await rendering.times_for(KNOWN) == 0


@pytest.mark.parametrize(("most", "again"), [(2 * SIZE, 0), (2 * SIZE - 1, 1), (1, 1)])
async def test_documents_are_kept_while_there_is_room_the_last_used_ones_longest(most, again):
    rendering = Rendering(most)
    other = KNOWN._replace(tag="other")
    await rendering.times_for(KNOWN)
    await rendering.times_for(other)
    assert await rendering.times_for(other) == 0
    assert await rendering.times_for(KNOWN) == again
    assert rendering.kept.size <= max(most, SIZE)


async def test_many_small_documents_take_no_more_memory_than_they_may():
    most = 1024 * 1024
    rendering = Rendering(most)
    tracemalloc.start()
    try:
        for number in range(5_000):  # each for another name of the hub, as anybody may call it
            await rendering.times_for(KNOWN._replace(tag=f"{number:024}"), b"gzip")
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1.2 * most
