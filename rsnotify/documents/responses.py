"""Documents as HTTP responses: conditional requests, compression, caching, HEAD.

ETag and date are known before a document is made, so an unchanged document costs nothing. An error
before the first entry becomes an HTTP status; a later one breaks the response off.
`SetAdmission` finds the set that a request is about, and checks that the peer may read it.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from email.utils import formatdate
from time import time
from typing import NamedTuple

from isal import isal_zlib
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rsnotify.access.access import Access
from rsnotify.access.base_url import BaseUrl
from rsnotify.access.caching import has_tag, max_age
from rsnotify.access.query import Query, form_of, parse_query
from rsnotify.documents.documents import Frame, ListHead
from rsnotify.errors import BecamePrivate, Rejected, TryAgain
from rsnotify.gunzip import GZIP
from rsnotify.journal.gzip_parts import PackedEntries
from rsnotify.live.journals import Journals
from rsnotify.resourcesync.change import MICROSECONDS
from rsnotify.resourcesync.forms import DOCUMENT_FORMS, NDJSON, XML, Form, accepts_gzip
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.json_writer import EntriesAsJson, render_json
from rsnotify.resourcesync.notification import capability_list
from rsnotify.resourcesync.xml_writer import Document, render_document
from rsnotify.sets.options import SetRecord
from rsnotify.single_flight import let_others_go_on

log = logging.getLogger(__name__)

REVALIDATE = "no-cache"
CLOCK_DIFFERENCE_SECONDS = 2  # between the hub and Redis
THREAD_BYTES = 128 * 1024  # larger pieces are compressed in a thread
KEPT_BYTES = 8 * 1024 * 1024  # of rendered documents, or the newest of them
KEY_BYTES = 500  # memory of a kept document besides its content
JSON_BYTES = 16 * 1024  # of XML, made JSON in one step: half a millisecond


class DocumentInfo(NamedTuple):
    """What the response headers say of a document, known before the document is made."""

    tag: str
    modified: int  # microseconds
    is_fixed: bool = False  # it never changes
    is_private: bool = False
    link: str = ""  # to the Capability List
    form: Form = XML
    head: ListHead | None = None  # of a list


Parts = Sequence[bytes]
ByteStream = AsyncIterator[bytes]
MakeDocument = Callable[[bool], Awaitable[Parts | ByteStream]]
"""Makes the document, all its parts or a stream; in gzip if the argument is true."""


async def document_response(request: Request, info: DocumentInfo, make: MakeDocument) -> Response:
    """The document, or 304 if the peer has it."""
    if is_unchanged(request.headers, info):
        return Response(status_code=304, headers=_headers(info))
    in_gzip = accepts_gzip(request.headers.get("accept-encoding"))
    headers = _headers(info, in_gzip=in_gzip)
    if request.method == "HEAD":
        head = Response(headers=headers, media_type=info.form.media_type)
        del head.headers["content-length"]  # the document would have to be made for that
        return head
    made = await make(in_gzip)
    if isinstance(made, Sequence):
        return _PartsResponse(made, headers, info.form.media_type)
    return _StreamedResponse(made, headers=headers, media_type=info.form.media_type)


class KeptDocuments:
    """Responses for documents that are rendered in one step: they are kept until others need their
    room. A tag stands for one content for ever."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._kept: OrderedDict[tuple[str, str, str, bool], bytes] = OrderedDict()
        self.size = 0  # bytes of memory of these

    async def respond(
        self, request: Request, info: DocumentInfo, write: Callable[[], bytes]
    ) -> Response:
        async def make(in_gzip: bool) -> Parts:
            key = (info.link, info.tag, info.form.name, in_gzip)
            document = self._kept.get(key)
            if document is None:
                document = await gzipped(write()) if in_gzip else write()
            self._keep(key, document)
            return [document]

        return await document_response(request, info, make)

    def _keep(self, key: tuple[str, str, str, bool], document: bytes) -> None:
        if (before := self._kept.pop(key, None)) is not None:
            self.size -= len(before) + KEY_BYTES
        self._kept[key] = document
        self.size += len(document) + KEY_BYTES
        while self.size > self._most_bytes and len(self._kept) > 1:
            self.size -= len(self._kept.popitem(last=False)[1]) + KEY_BYTES


async def gzipped(document: bytes) -> bytes:
    """Compress a document; a large one in a thread."""
    if len(document) > THREAD_BYTES:
        return await asyncio.to_thread(isal_zlib.compress, document, wbits=GZIP)
    return isal_zlib.compress(document, wbits=GZIP)


def is_unchanged(headers: Headers, info: DocumentInfo) -> bool:
    """Whether the peer has this document. If it sends ETags, its date is ignored."""
    tags = headers.get("if-none-match")
    if tags is not None:
        return has_tag(tags, f'"{_tag(info)}"')
    since = headers.get("if-modified-since")
    return since is not None and info.modified <= _microseconds(since)


async def stream_list(
    head: ListHead, form: Form, entries: ByteStream, *, in_gzip: bool, json_turn: asyncio.Lock
) -> ByteStream:
    """A list in this form; its entries come as XML."""
    written = entries if form is XML else _as_json(entries, form, json_turn)
    return await stream_document(head.frame(form), written, in_gzip=in_gzip)


async def _as_json(entries: ByteStream, form: Form, json_turn: asyncio.Lock) -> ByteStream:
    """One step of one list in a turn of the event loop, however many lists are read. A thread would
    hold up everybody: it runs Python, so the event loop has to wait for it at each callback."""
    writer = EntriesAsJson(in_lines=form is NDJSON)
    async for piece in entries:
        for start in range(0, len(piece), JSON_BYTES):
            async with json_turn:
                written = writer.feed(piece[start : start + JSON_BYTES])
                await let_others_go_on()
            if written:
                yield written


async def stream_document(frame: Frame, entries: ByteStream, *, in_gzip: bool) -> ByteStream:
    """A document as its entries are read. The first entries are read here, so that an error in
    reading them becomes an HTTP status."""
    framed = _framed(frame, await anext(entries, b""), entries)
    return _gzipped(framed) if in_gzip else framed


async def _framed(frame: Frame, first: bytes, entries: ByteStream) -> ByteStream:
    yield frame.head
    yield first
    del first  # the rest may take long
    async for piece in entries:
        yield piece
    yield frame.foot


async def _gzipped(stream: ByteStream) -> ByteStream:
    """Compress the stream, large pieces in a thread."""
    deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, GZIP)
    async for piece in stream:
        if len(piece) > THREAD_BYTES:
            yield await asyncio.to_thread(deflate.compress, piece)
        else:
            yield deflate.compress(piece)
    yield deflate.flush()


class _PartsResponse(Response):
    """Sends the parts of a document one after the other, without a copy."""

    def __init__(self, parts: Parts, headers: dict[str, str], media_type: str) -> None:
        self._parts = parts
        length = sum(map(len, parts))
        super().__init__(headers=headers | {"content-length": str(length)}, media_type=media_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        await send(
            {"type": "http.response.start", "status": 200, "headers": self.raw_headers},
        )
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await let_others_go_on()  # a socket may take megabytes without a pause
        await send({"type": "http.response.body", "body": b""})


class _StreamedResponse(StreamingResponse):
    """Sends a document as it is read. If that fails, the response ends without its last chunk."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send until the peer has gone. The library would load anyio for this: 0.2 s at first."""
        sending = asyncio.create_task(self.stream_response(send))
        listening = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
            if not sending.done():
                sending.cancel()
                await asyncio.wait((sending,))
        if not sending.cancelled():
            sending.result()

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except (TryAgain, Rejected) as error:
            log.warning("a response is broken off: %s", error.detail)


def _headers(info: DocumentInfo, *, in_gzip: bool = False) -> dict[str, str]:
    scope = "private" if info.is_private else "public"
    vary = "accept, accept-encoding"
    headers = {
        "etag": f'W/"{_tag(info)}"' if in_gzip else f'"{_tag(info)}"',
        "last-modified": _last_modified(info.modified),
        "cache-control": f"{scope}, {_kept(info)}",
        "vary": f"{vary}, authorization" if info.is_private else vary,
    }
    if info.link:
        headers["link"] = ", ".join(_links(info))
    if info.head is not None:
        headers |= info.head.headers()
    if in_gzip:
        headers["content-encoding"] = "gzip"
    return headers


def _kept(info: DocumentInfo) -> str:
    """What is private is asked for again each time, as the right to it may have ended."""
    if not info.is_fixed or info.is_private:
        return REVALIDATE
    return max_age(info.modified, int(time() * MICROSECONDS))


def _tag(info: DocumentInfo) -> str:
    """The ETag of a form; each form has its own."""
    return info.tag if info.form is XML else f"{info.tag}-{info.form.name}"


def _links(info: DocumentInfo) -> Iterator[str]:
    yield f'<{info.link}>; rel="resourcesync"'
    for link in info.head.links if info.head is not None else ():
        if link.rel != "up":  # that is the Capability List
            yield f'<{link.href}>; rel="{link.rel}"'


def _last_modified(modified: int) -> str:
    """The time of the change, rounded up to a second once that second is over. Until then it is the
    second before the change, which matches no condition: another change may still come."""
    second = -(-modified // MICROSECONDS)
    is_certain = second + CLOCK_DIFFERENCE_SECONDS < time()
    return formatdate(second if is_certain else second - 1, usegmt=True)


def _microseconds(date: str) -> float:
    seconds = date_seconds(date)
    return float("-inf") if seconds is None else seconds * MICROSECONDS


class RequestedSet(NamedTuple):
    """A request for a document of a set that the peer may read; its form, and the base URL for
    links in the answer."""

    request: Request
    name: str
    record: SetRecord
    base: str
    form: Form
    find: Callable[[str], SetRecord]  # the set as it is at that moment
    json_turn: asyncio.Lock  # of the hub, for a step of making JSON

    def info(
        self, tag: str, modified: int, *, is_fixed: bool = False, head: ListHead | None = None
    ) -> DocumentInfo:
        """Describes a document of this set, whose content is chosen by now."""
        if self.find(self.name).private > self.record.private:
            raise BecamePrivate(self.name)  # and the content may be what came afterwards
        link = self.base + capability_list(self.name)
        return DocumentInfo(tag, modified, is_fixed, self.record.private, link, self.form, head)

    async def document(
        self,
        kept: KeptDocuments,
        tag: str,
        modified: int,
        describe: Callable[[], Document],
        *,
        is_fixed: bool = False,
    ) -> Response:
        """A document that is rendered in one step, and kept."""
        render = render_document if self.form is XML else render_json
        info = self.info(tag, modified, is_fixed=is_fixed)
        return await kept.respond(self.request, info, lambda: render(describe()))

    async def list(
        self,
        head: ListHead,
        tag: str,
        modified: int,
        entries: Callable[[], ByteStream],
        packed: Callable[[], Awaitable[PackedEntries]] | None = None,
        *,
        is_fixed: bool = False,
    ) -> Response:
        """A list of these entries; if they are packed, they need not be compressed again."""

        async def make(in_gzip: bool) -> Parts | ByteStream:
            if packed is not None and in_gzip and self.form is XML:
                return (await packed()).gzipped(*head.frame(XML))
            return await self.stream(head, entries(), in_gzip=in_gzip)

        info = self.info(tag, modified, is_fixed=is_fixed, head=head)
        return await document_response(self.request, info, make)

    async def stream(self, head: ListHead, entries: ByteStream, *, in_gzip: bool) -> ByteStream:
        """A list as its entries are read."""
        return await stream_list(
            head, self.form, entries, in_gzip=in_gzip, json_turn=self.json_turn
        )


class SetAdmission:
    """Admits requests to sets."""

    def __init__(self, journals: Journals, access: Access, base_url: BaseUrl) -> None:
        self._journals = journals
        self._access = access
        self._base_url = base_url
        self._json_turn = asyncio.Lock()

    async def admit(self, request: Request, forms: Sequence[Form] = DOCUMENT_FORMS) -> RequestedSet:
        name = request.path_params["set"]
        await self._access.require_reader(request, name, self._journals.sets.get(name))
        record = self._journals.record(name)
        base, form = self._base_url.base(request), form_of(request, forms)
        find = self._journals.record
        return RequestedSet(request, name, record, base, form, find, self._json_turn)


def query_of(request: Request, known: Sequence[str]) -> Query:
    """The query of the address; a parameter that is not known here is refused."""
    return parse_query(request.scope["query_string"], known)
