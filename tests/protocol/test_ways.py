"""What is published by any of the ways in is told equally by all ways out."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import aiohttp
import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rsnotify.resourcesync.change import Change, Link
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import Document, Entry, Md, render_document
from tests.support.raw import raw_channel
from tests.support.receivers import Receiver, has, subscribe, topic
from tests.support.running import RunningHub

SET = "dataset1"
XML = "application/xml"
ENTRIES = re.compile(rb"<url>.*?</url>", re.DOTALL)

# What is published ------------------------------------------------------------------------------

TEXT = st.text("aé&<>'\" ~%/", min_size=1, max_size=8).filter(lambda text: text.strip() == text)
LOCS = st.from_regex(r"http://example\.com/[a-z&';~()=?]{1,20}", fullmatch=True)
DATES = st.sampled_from(["2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z"])
MD5 = st.from_regex(r"md5:[0-9a-f]{32}", fullmatch=True)
LENGTHS = st.integers(0, 10**18 - 1)
LINKS = st.builds(
    Link,
    rel=st.sampled_from(["duplicate", "http://example.com/rel?a&b"]),
    href=LOCS,
    pri=st.none() | st.integers(1, 999_999),
    length=st.none() | LENGTHS,
    modified=st.none() | st.just("2026-01-01T00:00:00Z"),
)
CHANGES = st.lists(
    st.builds(
        Change,
        loc=LOCS,
        change=st.sampled_from(["created", "updated", "deleted"]),
        lastmod=st.none() | DATES,
        hash=st.none() | MD5,
        length=st.none() | LENGTHS,
        type=st.none() | st.sampled_from(["text/html", 'text/plain; charset="a&b"']),
        encoding=st.none() | TEXT,
        changefreq=st.none() | st.just("daily"),
        priority=st.none() | st.sampled_from([0.0, 0.5, 1.0]),
        links=st.lists(LINKS, max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=4,
)


def in_xml(changes: Sequence[Change]) -> bytes:
    names = ("change", "hash", "length", "type", "encoding")
    entries = tuple(
        Entry(
            each.loc,
            each.lastmod,
            each.changefreq,
            None if each.priority is None else str(each.priority),
            md=Md(**{name: getattr(each, name) for name in names}),
            links=each.links,
        )
        for each in changes
    )
    return render_document(Document("urlset", entries=entries))


# The ways in: each answers with what the hub said of the set ------------------------------------


async def posted(hub: RunningHub, path: str, body: bytes, type_: str, **headers: str) -> Any:
    sent = {"Content-Type": type_} | headers
    status, answer = await hub.ask("POST", path, data=body, headers=sent)
    assert status in (200, 201), answer
    return answer


async def by_json(hub: RunningHub, changes: Sequence[Change]) -> Any:
    body = msgspec.json.encode(changes)
    return await posted(hub, f"/api/sets/{SET}/changes", body, "application/json")


async def by_ndjson(hub: RunningHub, changes: Sequence[Change]) -> Any:
    body = b"\n".join(map(msgspec.json.encode, changes))
    return await posted(hub, f"/api/sets/{SET}/changes", body, "application/x-ndjson")


async def by_xml(hub: RunningHub, changes: Sequence[Change]) -> Any:
    return await posted(hub, f"/api/sets/{SET}/changes", in_xml(changes), XML)


async def by_several_sets(hub: RunningHub, changes: Sequence[Change]) -> Any:
    body = json.dumps([msgspec.to_builtins(each) | {"sets": [SET]} for each in changes]).encode()
    return (await posted(hub, "/api/changes", body, "application/json"))["sets"][SET]


async def by_fat_ping(hub: RunningHub, changes: Sequence[Change]) -> Any:
    link = f'<{topic(hub, SET)}>; rel="self", <{hub.url}/hub>; rel="hub"'
    return await posted(hub, "/hub", in_xml(changes), XML, Link=link)


WAYS_IN: tuple[Callable[[RunningHub, Sequence[Change]], Awaitable[Any]], ...]
WAYS_IN = (by_json, by_ndjson, by_xml, by_several_sets, by_fat_ping)

# The ways out: each answers with the document in which the changes are told ----------------------


async def by_websocket(hub: RunningHub, from_: str) -> bytes:
    async with raw_channel(f"{hub.channel(SET)}?from={from_}") as reader:
        return await reader.text()


async def by_event_stream(hub: RunningHub, from_: str) -> bytes:
    headers = {"Accept": "text/event-stream"}
    address = f"{topic(hub, SET)}?from={from_}"
    async with aiohttp.ClientSession() as session, session.get(address, headers=headers) as answer:
        lines = []
        while (line := await answer.content.readline()) != b"\n" or not lines:
            if line.startswith(b"data: "):
                lines.append(line.removeprefix(b"data: ").rstrip(b"\n"))
        return b"\n".join(lines)


async def by_topic(hub: RunningHub, from_: str) -> bytes:
    return (await hub.ask("GET", topic(hub, SET).removeprefix(hub.url)))[1]


async def by_change_list(hub: RunningHub, from_: str) -> bytes:
    return (await hub.ask("GET", f"/{SET}/changelist.xml?from={from_}"))[1]


WAYS_OUT = (by_websocket, by_event_stream, by_topic, by_change_list)


def meaning(document: bytes, changes: Sequence[Change]) -> list[Change]:
    """What is told of the changes, without what is another with each publish."""
    told = [change_of(entry) for entry in parse_document(document).entries]
    return [
        msgspec.structs.replace(each, datetime=None, lastmod=each.lastmod if own.lastmod else None)
        for each, own in zip(told, changes, strict=True)
    ]


async def told_equally(hub: RunningHub, receiver: Receiver, changes: Sequence[Change]) -> None:
    for way_in in WAYS_IN:
        delivered = len(receiver.deliveries)
        answer = await way_in(hub, changes)
        documents = {way.__name__: await way(hub, answer["from"]) for way in WAYS_OUT}
        requests = await has(receiver, delivered + 1)
        documents["by WebSub"] = requests[-1].body
        entries = {name: ENTRIES.findall(document) for name, document in documents.items()}
        expected = entries["by_change_list"]
        assert entries == dict.fromkeys(entries, expected), way_in.__name__
        assert meaning(documents["by_change_list"], changes) == list(changes), way_in.__name__


def test_whatever_way_in_all_ways_out_tell_the_same(tmp_path):
    with asyncio.Runner() as runner:
        hub = RunningHub(tmp_path / "data", callback_private="allow")
        receiver = Receiver()

        async def begin() -> None:
            await hub.start()
            await receiver.__aenter__()
            await subscribe(hub, receiver, SET)

        async def end() -> None:
            await receiver.__aexit__(None, None, None)
            await hub.stop()

        @settings(max_examples=6, suppress_health_check=list(HealthCheck))
        @given(CHANGES)
        def each(changes: list[Change]) -> None:
            runner.run(told_equally(hub, receiver, changes))

        runner.run(begin())
        try:
            each()
        finally:
            runner.run(end())
