"""A Source that offers its changes as Change Dumps only is followed by their manifests."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator

import pytest

from clients.python.tests.client.test_follow import read
from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.tables import MAX_BYTES
from rsnotify.resourcesync.xml_writer import Entry, Md
from tests.support.sources import CAPABILITIES, Source, rendered


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    async with Source() as running:
        running.documents[CAPABILITIES] = running.capability_list("changedump")
        yield running


def manifest(*changes: Change, path: str | None = None) -> bytes:
    entries = [
        Entry(each.loc, md=Md(change=each.change, datetime=each.datetime, path=path))
        for each in changes
    ]
    return rendered("changedump-manifest", entries, **{"from": "2026-11-20T00:00:00Z"})


def package(manifest: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("manifest.xml", manifest)
    return file.getvalue()


def dump(source: Source, *names: str, links: tuple[Link, ...] = ()) -> None:
    """The Change Dump lists these packages."""
    entries = [Entry(source.loc(name), links=links) for name in names]
    md = {"from": str(source.at)}
    source.documents["/changedump.xml"] = rendered("changedump", entries, **md)


async def test_packages_are_read_as_they_come(source):
    made, gone = source.change("a", b"1"), source.change("a", None)
    source.documents["/1.zip"] = package(manifest(made, gone))
    dump(source, "1.zip")
    reading = asyncio.create_task(read(source.url + CAPABILITIES, 3, after=str(source.at)))
    while source.asked["/changedump.xml"] < 2:
        await asyncio.sleep(0.01)
    source.documents["/2.zip"] = package(manifest(source.change("b", b"2")))
    dump(source, "1.zip", "2.zip")
    assert await reading == [("updated", "a"), ("deleted", "a"), ("updated", "b")]


async def test_a_manifest_that_can_be_had_alone_is(source):
    source.documents["/1.xml"] = manifest(source.change("a", b"1"))
    dump(source, "1.zip", links=(Link("contents", source.loc("1.xml")),))
    assert await read(source.url + CAPABILITIES, 1, after=str(source.at)) == [("updated", "a")]
    assert source.asked["/1.zip"] == 0


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        (lambda: b"hello", "is no ZIP package"),
        (lambda: package(b" " * (MAX_BYTES + 1)), f"inflates beyond {MAX_BYTES} bytes"),
        (lambda: package(b"<!DOCTYPE a><urlset/>"), "DOCTYPE"),
        (
            lambda: package(manifest(Change("http://a/b", "updated"), path="/../b")),
            "leads out of",
        ),
    ],
)
async def test_a_hostile_package_is_skipped_by_name_and_the_rest_goes_on(
    source, caplog, hostile, said
):
    source.documents["/1.zip"] = hostile()
    source.documents["/2.zip"] = package(manifest(source.change("a", b"1")))
    dump(source, "1.zip", "2.zip")
    assert await read(source.url + CAPABILITIES, 1, after=str(source.at)) == [("updated", "a")]
    assert "/1.zip" in caplog.text
    assert said in caplog.text
