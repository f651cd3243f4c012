"""All that can be pulled, without a process around it: on a real Redis, asked as ASGI is asked."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from lxml import etree
from starlette.datastructures import Headers
from starlette.types import ASGIApp

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.cors import Cors
from rsnotify.access.tokens import Tokens
from rsnotify.channels.channels import Channels
from rsnotify.channels.keepalive import Keepalive
from rsnotify.coordination.bell import Bell
from rsnotify.documents.announcements import AnnouncedNotes, Announcements
from rsnotify.documents.changelists import COLD_CHANGES, ChangeListEndpoints
from rsnotify.documents.chores import Upkeep
from rsnotify.documents.discovery import Discovery, Offers, PublicSets
from rsnotify.documents.pages import Pages
from rsnotify.documents.resourcelists import ResourceListEndpoints
from rsnotify.documents.responses import SetAdmission
from rsnotify.documents.snapshots import Snapshots
from rsnotify.documents.stretches import READ_SIZES, ReadSizes, Stretches
from rsnotify.http.endpoints import Routes
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.journal.window import WINDOW_BYTES, DocumentSchedule
from rsnotify.journal.windows import Windows
from rsnotify.live.journals import Journals
from rsnotify.loops import end
from rsnotify.process.app import build_app, pull_routes, stream_routes
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import HOUR, Change, Position
from rsnotify.resourcesync.document_rules import check
from rsnotify.resourcesync.notification import ChannelName, Interval
from rsnotify.resourcesync.tables import MAX_ENTRIES
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Document
from rsnotify.sets.options import SetOptions
from rsnotify.sets.records import Sets
from rsnotify.single_flight import kept_seconds
from rsnotify.streams.long_polls import LongPolls
from rsnotify.streams.streams import Streams
from tests.support.running import TOKEN, until
from tests.unit.test_examples import schema

BASE = "http://hub.example.org"
SET = "dataset1"
CHANGES = ChannelName(SET, "change")
FRAMEWORK = ChannelName(SET, "framework")


class Answer(NamedTuple):
    status: int
    headers: Headers
    body: bytes
    is_whole: bool  # else it was broken off

    @property
    def document(self) -> Document:
        """What was answered, held against every rule and the schema."""
        assert self.status == 200, self.body
        assert [violation.message for violation in check(self.body)] == []
        document = parse_document(self.body)
        if document.entries:  # an empty one is legal, but not by the schema
            schema(document.root).assertValid(etree.fromstring(self.body))
        return document


class Pulling:
    """One hub process's worth of objects; several may stand on one Redis."""

    def __init__(
        self,
        client: Client,
        *,
        changes: int = 10_000,
        hours: float = 24,
        index_days: int = 30,
        retention_days: int = 365,
        public_url: str | None = BASE,
        archived_lists: int = 0,
        early_seconds: int = 60,
        page_size: int = 50_000,
        window_bytes: int = WINDOW_BYTES,
        reads: ReadSizes = READ_SIZES,
        cold_changes: int = COLD_CHANGES,
        seconds_kept: Callable[[int], float] = kept_seconds,
        most_described: int = MAX_ENTRIES,
        paging: Mapping[str, Any] = MappingProxyType({}),
        **sizes: int,
    ) -> None:
        """What else is given are sizes of snapshots; `paging` are options of `Pages`."""
        self.client = client
        self._cold_changes, self._seconds_kept, self._paging = cold_changes, seconds_kept, paging
        self.journal = JournalStore(
            client, window_changes=changes, window_bytes=window_bytes, window_hours=hours
        )
        self.windows, self.snapshots = Windows(client), Snapshots(client, **sizes)
        bell = Bell(connect("redis://nowhere"))
        self.hub = Journals(self.journal, Sets(client), bell, self.windows, base_url=BASE)
        self.schedule = DocumentSchedule(
            int(hours * HOUR), index_days, retention_days, 60, archived_lists,
            early_seconds=early_seconds,
        )  # fmt: skip
        self.offers = Offers(self.windows, self.snapshots, index_days)
        self.public_sets = PublicSets(self.hub, most_described)
        self.stretches = Stretches(self.journal, self.windows, sizes=reads)
        self.upkeep = self._upkeep()
        self.app = self._app(BaseUrl(public_url), page_size)

    def _upkeep(self) -> Upkeep:
        announcements = Announcements(
            self.hub, self.windows, self.offers, self.public_sets, AnnouncedNotes(self.client),
            self.schedule,
        )  # fmt: skip
        return Upkeep(
            self.hub,
            self.windows,
            self.snapshots,
            announcements,
            self.stretches.store_packed,
            self.schedule,
        )

    def _app(self, base_url: BaseUrl, page_size: int) -> ASGIApp:
        admission = SetAdmission(self.hub, Access(Tokens(self.client), TOKEN), base_url)
        discovery = Discovery(
            self.hub, admission, base_url, self.offers, self.public_sets, self.snapshots,
            describedby=None, seconds_kept=self._seconds_kept,
        )  # fmt: skip
        change_lists = ChangeListEndpoints(
            self.hub,
            admission,
            self.windows,
            self.stretches,
            Pages(self.hub.history, page_size, **self._paging),
            self.schedule,
            self._cold_changes,
        )
        resource_lists = ResourceListEndpoints(admission, self.snapshots, page_size=page_size)
        return build_app(
            [*self._stream_routes(), *pull_routes(discovery, change_lists, resource_lists)]
        )

    def _stream_routes(self) -> Routes:
        access = Access(Tokens(self.client), TOKEN)
        channels = Channels(self.hub, access, Keepalive(send_timeout_seconds=60))
        polls, cors = LongPolls(self.hub, channels, 300), Cors(self.hub, None)
        return stream_routes(Streams(self.hub, access, self.windows, channels, polls, cors))

    async def __aenter__(self) -> Self:
        await self.hub.add_set(SET, SetOptions())
        self._following = asyncio.create_task(self.hub.following.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await end([self._following])

    async def publish(self, *changes: Change) -> Interval:
        fragments = [fragment_of(change) for change in changes]
        return await self.hub.publish(CHANGES, Submission(fragments))

    async def update(self, *names: str) -> Interval:
        return await self.publish(*(Change(loc(name), "updated") for name in names))

    async def get(
        self,
        path: str,
        *,
        method: str = "GET",
        app: ASGIApp | None = None,
        body: bytes = b"",
        **headers: str,
    ) -> Answer:
        """One request; its address may be whole, as documents have it."""
        parts = urlsplit(path)
        sent = {"host": "hub.example.org"} | headers
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "root_path": "",
            "headers": [
                (name.replace("_", "-").encode(), value.encode()) for name, value in sent.items()
            ],
            "client": ("192.0.2.1", 1234),
            "server": ("hub.example.org", 80),
        }
        messages: list[dict[str, object]] = []
        asked = asyncio.Event()

        async def receive() -> dict[str, object]:
            if not asked.is_set():
                asked.set()
                return {"type": "http.request", "body": body, "more_body": False}
            await asyncio.Event().wait()  # we stay connected
            raise AssertionError

        async def send(message: dict[str, object]) -> None:
            messages.append(message)

        await (app or self.app)(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in messages[1:])
        is_whole = not messages[-1].get("more_body", False)
        return Answer(messages[0]["status"], Headers(raw=messages[0]["headers"]), body, is_whole)

    async def document(self, path: str) -> Document:
        return (await self.get(path)).document

    async def is_level(self) -> None:
        """Wait until the follow loop has seen all that was published."""

        async def reached() -> bool:
            head = (await self.windows.record(SET)).head
            return self.hub.feed(CHANGES).tail.head >= head

        await until(reached)

    async def keep_windows(self) -> None:
        """The chore, for all sets."""
        await self._make_all_due()
        await self.upkeep.windows.keep_due()

    async def keep_snapshots(self) -> None:
        """The chore, for all sets."""
        await self._make_all_due()
        await self.upkeep.snapshots.keep_due()

    async def _make_all_due(self) -> None:
        for look_at_all in self.hub.after_another_server:
            await look_at_all()

    async def let_go_of_all(self) -> None:
        """Trim the stream behind every closed window, however young, once it is packed."""
        record = await self.windows.record(SET)
        for window in (await self.windows.span(SET, after=record.first)).windows:
            assert await self.windows.trim(SET, window)

    async def set_last(self, position: int) -> None:
        """As if a clock had been ahead and has gone back since."""
        record = await self.windows.record(SET)
        last = max(record.last, position)
        await self.client.hset(f"rsnotify:{{{SET}}}:change:record", "last", int(last))


def loc(name: str) -> str:
    return f"http://example.com/{name}"


def times(document: Document) -> list[Position]:
    """The positions of a Change List's entries."""
    found = (entry.md and entry.md.datetime for entry in document.entries)
    return [Position.parse(datetime or "") for datetime in found]


def names(document: Document) -> list[str]:
    return [entry.loc.rpartition("/")[2] for entry in document.entries]
