"""The streams of every set: catch-up reads, and what a stream says of itself.

A chunk is what `live.reading` gives to any reader at its cursor: read and rendered once for all who
are there. A read shows every change that was acknowledged before it came, by any hub process.
"""

from time import time
from typing import NamedTuple

from isal import isal_zlib
from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.access.query import check_not_future
from rsnotify.errors import BecamePrivate, HistoryDeleted, NoSuchSet
from rsnotify.journal.window import whole_from
from rsnotify.journal.windows import Windows
from rsnotify.live.feed import Feed
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.forms import JSON, accepts_gzip
from rsnotify.resourcesync.json_writer import entries_as_json
from rsnotify.resourcesync.notification import ChannelName, Kind, Notification
from rsnotify.sets.options import SetRecord
from rsnotify.streams.stream_headers import (
    NO_STORE,
    Chunk,
    cache_control,
    etag,
    has_tag,
    headers_of,
    vary,
)
from rsnotify.streams.stream_query import (
    Offset,
    Sentinel,
    StreamQuestion,
    parse_stream_question,
)

GZIP = 31  # as window bits: deflate in a gzip file
MADE_AGAIN = "this offset is of a set that was removed; the one of this name begins at {}"


class RequestedStream(NamedTuple):
    """A request for a stream that the peer may read."""

    request: Request
    channel: ChannelName
    record: SetRecord  # of its set, as it was when that was decided
    feed: Feed


class Streams:
    """Each channel as a Durable Stream."""

    def __init__(self, journals: Journals, access: Access, windows: Windows) -> None:
        self._journals = journals
        self._access = access
        self._windows = windows

    async def changes(self, request: Request) -> Response:
        """A set's changes as a Durable Stream, from an offset on."""
        return await self._read(request, "change")

    async def framework(self, request: Request) -> Response:
        """The changes of a set's documents as a Durable Stream, from an offset on."""
        return await self._read(request, "framework")

    async def _read(self, request: Request, kind: Kind) -> Response:
        asked = parse_stream_question(request.scope["query_string"])
        requested = await self._admit(request, kind)
        if request.method == "HEAD":
            return await self._tail(requested)
        if asked.offset is Sentinel.NOW:
            return await self._tail(requested, b"[]")
        return await self._catch_up(requested, asked)

    async def _admit(self, request: Request, kind: Kind) -> RequestedStream:
        channel = ChannelName(request.path_params["set"], kind)
        name = channel.set_name
        await self._access.require_reader(request, name, self._journals.sets.get(name))
        record = self._journals.record(name)
        return RequestedStream(request, channel, record, self._journals.feed(channel))

    async def _tail(self, requested: RequestedStream, body: bytes = b"") -> Response:
        """Where the stream ends now, which no cache may keep."""
        await self._journals.catch_up(requested.feed)
        self._check_unchanged(requested)
        head = requested.feed.note_head_given()
        headers = headers_of(requested.channel, head, is_newest=True)
        return Response(
            body, headers=headers | {"cache-control": NO_STORE}, media_type=JSON.media_type
        )

    # --- catching up -----------------------------------------------------------------------------

    async def _catch_up(self, requested: RequestedStream, asked: StreamQuestion) -> Response:
        feed = requested.feed
        begin = await self._begin(feed, asked.offset)
        found = await self._next(feed, begin)
        self._check_unchanged(requested)
        head = feed.tail.head
        until = min(begin, head) if found is None else found.until
        if until == head:
            feed.note_head_given()
        chunk = Chunk(min(begin, until), until, is_newest=until >= head)
        return _answer(requested, asked, chunk, found)

    async def _begin(self, feed: Feed, offset: Offset) -> Position:
        """The position that an offset stands for."""
        if not isinstance(offset, Position):
            return await self._beginning(feed)
        name = feed.channel
        if self._journals.known.is_former(name.set_name, offset):
            raise HistoryDeleted(MADE_AGAIN.format(feed.created), Position.parse(feed.created))
        if offset > feed.tail.head:  # another hub process may know newer changes
            head = await self._journals.head(name)
            check_not_future(offset, head, int(time() * MICROSECONDS), "offset")
        return max(offset, Position.parse(feed.created))

    async def _beginning(self, feed: Feed) -> Position:
        """Where what is kept begins, behind the newest gap."""
        standing = await self._journals.reading.standing(feed.channel)
        first = standing.first
        if feed.channel.kind == "change":
            first = whole_from(await self._windows.span(feed.channel.set_name))
        return max(first, standing.gap, Position.parse(feed.created))

    async def _next(self, feed: Feed, begin: Position) -> Notification | None:
        """What follows, as much as one answer has; None at the end. What reaches the end as far as
        this process knows is looked for again once it has read all."""
        reading = self._journals.reading
        found = await reading.batch_after(feed, begin)
        if found is None or found.until >= feed.tail.head:
            await self._journals.catch_up(feed)
            found = await reading.batch_after(feed, begin)
        return found

    def _check_unchanged(self, requested: RequestedStream) -> None:
        """Refuse what was read of a set that is another one now, or has become private."""
        before, name = requested.record, requested.channel.set_name
        record = self._journals.record(name)
        if record.created != before.created:
            raise NoSuchSet(name)
        if record.private > before.private:
            raise BecamePrivate(name)


def _answer(
    requested: RequestedStream, asked: StreamQuestion, chunk: Chunk, found: Notification | None
) -> Response:
    in_gzip = found is not None and accepts_gzip(requested.request.headers.get("accept-encoding"))
    is_private = requested.record.private
    now = int(time() * MICROSECONDS)
    headers = {
        **headers_of(requested.channel, chunk.until, is_newest=chunk.is_newest),
        "etag": etag(requested.record.created, chunk, in_gzip=in_gzip),
        "cache-control": cache_control(
            chunk, now, is_private=is_private, is_canonical=asked.is_canonical
        ),
        **vary(is_private=is_private),
    }
    if has_tag(requested.request.headers.get("if-none-match"), headers["etag"]):
        return Response(status_code=304, headers=headers)
    if in_gzip:
        headers["content-encoding"] = "gzip"
    body = _body(found, in_gzip=in_gzip)
    return Response(body, headers=headers, media_type=JSON.media_type)


def _body(found: Notification | None, *, in_gzip: bool) -> bytes:
    if found is None:
        return b"[]"
    return found.derived("chunk in gzip", _gzipped) if in_gzip else messages_of(found)


def messages_of(found: Notification) -> bytes:
    """The changes as a stream has them: an array with one message for each."""
    return found.derived("chunk", _messages)


def _messages(found: Notification) -> bytes:
    return b"[%s]" % b",\n".join(entries_as_json(found.payload[found.entries]))


def _gzipped(found: Notification) -> bytes:
    return isal_zlib.compress(messages_of(found), wbits=GZIP)
