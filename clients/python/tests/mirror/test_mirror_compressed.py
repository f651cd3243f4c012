"""Resources that come in gzip: unpacked, verified, bounded; or stored as the gzip that they are."""

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from clients.python.tests.mirror.test_mirror import LARGE, files, leavings, once
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.resource import SourceResource
from rsnotify_client.web import SMALL_BYTES
from rsnotify_mirror.fetch import may_be_compressed
from tests.support.packing import bomb
from tests.support.sources import CAPABILITIES, Source, digest, rendered

TEXT = b"the same again and again, " * 40
PACKED = gzip.compress(TEXT, mtime=0)
LONGEST = b"\0" * SMALL_BYTES


def told_of(content: bytes) -> dict[str, Any]:
    return {"hash": digest(content), "length": len(content)}


def listed(source: Source, name: str, **md: Any) -> None:
    """The only resource, and what the list says of it."""
    entries = [Entry(source.loc(name), md=Md(**md) if md else None)]
    source.documents["/resourcelist.xml"] = rendered("resourcelist", entries, at=str(source.at))
    source.documents[CAPABILITIES] = source.capability_list("resourcelist")


def sends(
    source: Source, name: str, packed: bytes, plain: bytes | None = None, *, chunked: bool = False
) -> list[str]:
    """In gzip to whoever asks for it, and to everybody if there is nothing `plain`.

    What was asked for comes back.
    """
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Accept-Encoding"])
        if asked[-1] != "gzip" and plain is not None:
            return web.Response(body=plain)
        answer = web.StreamResponse(headers={"Content-Encoding": "gzip"})
        if not chunked:
            answer.content_length = len(packed)
        await answer.prepare(request)
        await answer.write(packed)
        await answer.write_eof()
        return answer

    source.handlers[f"/{name}"] = answer
    return asked


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("told", "stored"),
    [
        (told_of(TEXT), TEXT),
        (told_of(PACKED), PACKED),
        ({"length": len(TEXT)}, TEXT),
        ({"length": len(PACKED)}, PACKED),
        ({"hash": digest(TEXT)}, TEXT),
        ({"hash": digest(PACKED)}, PACKED),
        ({}, TEXT),
    ],
)
async def test_the_list_says_whether_it_means_the_gzip_or_what_is_in_it(
    source, copy, told, stored, chunked
):
    await stores(source, copy, PACKED, told, stored, chunked=chunked)


async def stores(
    source: Source, copy: Path, sent: bytes, told: dict[str, Any], stored: bytes, *, chunked: bool
) -> None:
    """What is sent in gzip, and what the list tells of it, leads to this file at once."""
    listed(source, "a.txt", **told)
    asked = sends(source, "a.txt", sent, chunked=chunked)
    assert (await once(source, copy)).is_whole
    assert files(copy) == {"a.txt": stored}
    assert asked == ["gzip"]
    assert leavings(copy) == []


@pytest.mark.parametrize(
    ("sent", "told", "words"),
    [
        (PACKED[:-1], told_of(TEXT), "no whole gzip"),
        (PACKED[:-8] + bytes(8), told_of(TEXT), "no whole gzip"),
        (PACKED + b"more", told_of(TEXT), "no whole gzip"),
        (b"no gzip", {}, "no whole gzip"),
        (PACKED, told_of(TEXT[:-1]), f"more than {len(TEXT) - 1} bytes"),
        (PACKED, told_of(TEXT + b"!"), f"has {len(TEXT)} bytes"),
        (PACKED, {"hash": digest(b"other")}, "its sha-256 is"),
        (
            bomb(99 * SMALL_BYTES),
            {},
            "sent in gzip, which was not asked for",
        ),
        (
            bomb(99 * SMALL_BYTES),
            told_of(TEXT),
            f"more than {len(TEXT)} bytes",
        ),
    ],
)
async def test_gzip_that_is_damaged_or_holds_something_else_is_not_stored(
    source, copy, sent, told, words
):
    listed(source, "a.txt", **told)
    sends(source, "a.txt", sent)
    ran = await once(source, copy)
    assert not ran.is_whole
    assert files(copy) == {}
    assert words in ran.problems()


async def test_gzip_that_breaks_off_before_its_length_is_not_stored(source, copy):
    listed(source, "a.txt")

    async def breaks(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Encoding": "gzip"})
        answer.content_length = len(PACKED) + 1
        await answer.prepare(request)
        await answer.write(PACKED)
        assert request.transport is not None
        request.transport.close()
        return answer

    source.handlers["/a.txt"] = breaks
    assert not (await once(source, copy)).is_whole
    assert files(copy) == {}


@pytest.mark.parametrize(
    ("content", "asks"),
    [
        (LONGEST, ["gzip"]),
        (LONGEST + b"\0", ["gzip", "identity"]),
        (os.urandom(SMALL_BYTES), ["gzip", "identity"]),  # whose gzip is longer than it is
    ],
)
async def test_what_is_too_long_to_be_unpacked_in_memory_is_asked_for_as_it_is(
    source, copy, content, asks
):
    listed(source, "a.txt", hash=digest(content))
    asked = sends(source, "a.txt", gzip.compress(content), content)
    assert (await once(source, copy)).is_whole
    assert files(copy) == {"a.txt": content}
    assert asked == asks


@pytest.mark.parametrize(
    ("name", "kind", "length", "expected"),
    [
        ("a.txt", None, None, True),
        ("a.txt", None, SMALL_BYTES, True),
        ("a.txt", None, SMALL_BYTES + 1, True),
        ("a", None, None, True),
        ("a?b=c.jpg", None, None, True),
        ("a.jpg", None, None, False),
        ("a.csv.gz", None, None, False),
        ("a.zip", None, None, False),
        ("a.svg", None, None, True),
        ("a.jpg", "text/html; charset=utf-8", None, True),
        ("a", "application/ld+json", None, True),
        ("a", "application/xml", None, True),
        ("a.txt", "application/gzip", None, False),
        ("a", "application/octet-stream", None, True),
    ],
)
def test_gzip_is_asked_for_where_it_may_save_something(name, kind, length, expected):
    url = f"http://source.example/{name}"
    assert may_be_compressed(url, SourceResource(url, type=kind, length=length)) is expected


@pytest.mark.parametrize("status", [206, 416])
async def test_a_part_that_cannot_be_continued_is_begun_again_without_an_encoding(
    source, copy, status
):
    source.add("large.txt", LARGE)
    source.list_resources()
    ranges: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "identity"
        ranges.append(request.headers.get("Range"))
        if ranges[-1] is not None:
            headers = {"Content-Encoding": "gzip", "ETag": '"one"'}
            return web.Response(status=status, body=PACKED, headers=headers)
        answer = web.StreamResponse(headers={"ETag": '"one"'})
        answer.content_length = len(LARGE)
        await answer.prepare(request)
        await answer.write(LARGE if len(ranges) > 1 else LARGE[: len(LARGE) // 2])
        if len(ranges) == 1:
            assert request.transport is not None
            request.transport.close()
        return answer

    source.handlers["/large.txt"] = answer
    assert (await once(source, copy)).is_whole
    assert files(copy)["large.txt"] == LARGE
    assert [each is not None for each in ranges] == [False, True, False]
    assert leavings(copy) == []


LONG = os.urandom(SMALL_BYTES).hex().encode()
LONG_PACKED = gzip.compress(LONG, compresslevel=1, mtime=0)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("sent", "told", "stored"),
    [
        (LONG_PACKED, told_of(LONG), LONG),
        (LONG_PACKED, {"length": len(LONG)}, LONG),
        (LONG_PACKED + PACKED, told_of(LONG + TEXT), LONG + TEXT),
        (gzip.compress(bytes(2**22)), told_of(bytes(2**22)), bytes(2**22)),
    ],
    ids=["digest", "length", "two members", "full to the brim"],
)
async def test_long_texts_are_unpacked_on_the_way(source, copy, sent, told, stored, chunked):
    await stores(source, copy, sent, told, stored, chunked=chunked)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_long_gzip_that_the_list_means_is_stored_as_it_is(source, copy, chunked):
    listed(source, "a.txt", **told_of(LONG_PACKED))
    asked = sends(source, "a.txt", LONG_PACKED, chunked=chunked)
    assert (await once(source, copy)).is_whole
    assert files(copy) == {"a.txt": LONG_PACKED}
    assert asked == ["gzip", "identity"]


EMPTY = b"\x1f\x8b\x08\x08\0\0\0\0\0\xff" + b"n" * 1000 + b"\0\x03\0" + bytes(8)
"""A member of gzip that has a long name and no content."""


@pytest.mark.parametrize(
    ("sent", "told", "words"),
    [
        (LONG_PACKED[:-1], told_of(LONG), "no whole gzip: it breaks off within a member"),
        (LONG_PACKED[:-8] + bytes(8), told_of(LONG), "no whole gzip"),
        (LONG_PACKED + b"more", told_of(LONG), "no whole gzip"),
        (LONG_PACKED, told_of(LONG + b"!"), f"has {len(LONG)} bytes"),
        (LONG_PACKED, told_of(LONG[:-1]), f"more than {len(LONG) - 1} bytes"),
        (LONG_PACKED, told_of(LONG[::-1]), "its sha-256 is"),
        (bomb(2**28), told_of(LONG), f"more than {len(LONG)} bytes"),
        (EMPTY * 6_000, told_of(LONG), "more than twice as long in gzip as unpacked"),
    ],
    ids=["cut", "crc", "rest", "short", "long", "digest", "bomb", "nothing for ever"],
)
async def test_a_long_gzip_that_is_not_what_it_should_be_is_not_stored(
    source, copy, sent, told, words
):
    listed(source, "a.txt", **told)
    asked = sends(source, "a.txt", sent, plain=b"?", chunked=True)
    ran = await once(source, copy)
    assert not ran.is_whole
    assert files(copy) == {}
    assert leavings(copy) == []
    assert asked[:2] == ["gzip", "identity"]
    assert words in ran.problems()


async def test_a_long_text_that_broke_off_in_gzip_is_asked_for_as_it_is(source, copy):
    listed(source, "a.txt", **told_of(LONG))
    asked: list[tuple[str | None, ...]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.headers["Accept-Encoding"], request.headers.get("Range")))
        tag = {"ETag": '"one"'}
        if len(asked) == 3:
            assert asked[2][1] is not None
            begin = int(asked[2][1].removeprefix("bytes=").removesuffix("-"))
            part = {"Content-Range": f"bytes {begin}-{len(LONG) - 1}/{len(LONG)}"}
            return web.Response(status=206, body=LONG[begin:], headers=tag | part)
        is_gzip = len(asked) == 1
        body, headers = (LONG_PACKED, {"Content-Encoding": "gzip"}) if is_gzip else (LONG, {})
        answer = web.StreamResponse(headers=headers | tag)
        answer.content_length = len(body)
        await answer.prepare(request)
        await answer.write(body[: len(body) // 2])
        assert request.transport is not None
        request.transport.close()
        return answer

    source.handlers["/a.txt"] = answer
    assert (await once(source, copy)).is_whole
    assert files(copy) == {"a.txt": LONG}
    assert [each[0] for each in asked] == ["gzip", "identity", "identity"]
    assert [each[1] is None for each in asked] == [True, True, False]


async def test_a_body_without_an_end_is_left_at_the_length_that_was_told(source, copy):
    listed(source, "a.bin", length=len(LARGE))
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(200):
            await answer.write(bytes(SMALL_BYTES))
            sent += SMALL_BYTES
        return answer

    source.handlers["/a.bin"] = endless
    ran = await once(source, copy)
    assert not ran.is_whole
    assert sent < 150 * SMALL_BYTES  # five tries, and what sockets hold of each
    assert files(copy) == {}
    assert f"more than {len(LARGE)} bytes" in ran.problems()
