"""What is fuzzed: whatever reads bytes of strangers, each with what must hold whatever they are.

A target reads an input, of which the first byte chooses how: which form, and in pieces of which
size. It raises if it sees anything but a value or a refusal, and if bytes that come in pieces mean
something else than the same bytes at once.
"""

import asyncio
import io
import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from lxml import etree
from redis._parsers import _AsyncHiredisParser
from redis.exceptions import InvalidResponse, RedisError

from rsnotify.access import query
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.socket_reader import SocketReader
from rsnotify.errors import Rejected
from rsnotify.journal.submission import Submission
from rsnotify.publishing.bodies import read_submission, read_submissions
from rsnotify.publishing.loads.load_formats import LoadReader
from rsnotify.redis_client.pool import DirectConnection
from rsnotify.resourcesync.change import CHANGE_TYPES
from rsnotify.resourcesync.document_rules import judge_document
from rsnotify.resourcesync.stream import DocumentStream
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.websub import rules
from rsnotify_bridge.feeds import FeedPage, activity_page, feed_page, notification_page
from rsnotify_bridge.oaipmh import ALL, OaiPage, OaiRequest, early_token, identity_of, page_of
from rsnotify_bridge.rules import LocRule, changes_of, with_entry
from rsnotify_client.dumps import FREE_BYTES, RATIO, Package
from rsnotify_client.notification import read_notification
from rsnotify_client.provenance import publishable
from tests.unit.test_http_protocol import Peer, Transport

SIZES = (1, 7, 1_000)
STATUSES = range(100, 600)
WRITTEN_BYTES = 64 * 1024  # answers to an input that is no longer than some KiB
REFUSED = "refused"


class Violated(AssertionError):
    """What must hold does not."""


def check(holds: object, what: str) -> None:
    if not holds:
        raise Violated(what)


class Target(NamedTuple):
    """A reader, and words of its language that mutations put in."""

    read: Callable[[bytes], None]
    words: tuple[bytes, ...]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def outcome(read: Callable[[], object]) -> object:
    """What is read, or that it is refused: any other exception is a fault."""
    try:
        return read()
    except Rejected as refused:
        check(refused.detail, "a refusal says nothing")
        check(400 <= refused.status < 500, f"a refusal has the status {refused.status}")
        return REFUSED


# --- bodies --------------------------------------------------------------------------------------

_JSON, _NDJSON, _XML = "application/json", "application/x-ndjson", "application/xml"
_WRAPPED = b'<x xmlns:rs="http://www.openarchives.org/rs/terms/">%b</x>'


def _submission(body: bytes, content_type: str, kind: Any) -> object:
    found = outcome(lambda: read_submission(kind, body, content_type, None))
    if isinstance(found, Submission):
        for each in found.fragments:
            etree.fromstring(_WRAPPED % each.xml.replace(b"\0", b""))
    return found


def _load(body: bytes, content_type: str, size: int) -> object:
    def read() -> list[Any]:
        reader, found = LoadReader(content_type, ""), list[Any]()
        for piece in pieces(body, size):
            for ready in reader.feed(piece):
                found += ready
        return [*found, *reader.close()]

    return outcome(read)


def _loaded(body: bytes, content_type: str, number: int) -> None:
    in_pieces = _load(body, content_type, SIZES[number % len(SIZES)])
    check(in_pieces == _load(body, content_type, len(body) or 1), "pieces mean something else")


def _body(content_type: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        how, body = data[0] if data else 0, data[1:]
        if how % 2:
            _loaded(body, content_type, how // 2)
            return
        _submission(body, content_type, "framework" if how % 4 else "change")
        if content_type != _XML:
            outcome(lambda: read_submissions(body, content_type, None))

    return read


def read_xml(data: bytes) -> None:
    how, document = data[0] if data else 0, data[1:]
    if how % 4 == 0:
        _submission(document, _XML, "change")
    elif how % 4 == 1:
        _loaded(document, _XML, how // 4)
    elif how % 4 == 2:
        found = judge_document(document)
        check(found.kind, "a verdict without a kind")
        outcome(lambda: read_notification(document))
    else:
        _streamed(document, SIZES[how // 4 % len(SIZES)])


def _streamed(document: bytes, size: int) -> None:
    def read(size: int) -> object:
        stream = DocumentStream()
        found = [entry for piece in pieces(document, size) for entry in stream.feed(piece)]
        return [*found, *stream.close()], stream.skipped

    in_pieces = outcome(lambda: read(size))
    at_once = outcome(lambda: read(len(document) or 1))
    check(in_pieces == at_once, "pieces mean something else")
    whole = outcome(lambda: parse_document(document))
    check(whole == REFUSED or at_once != REFUSED, "a stream refuses what is right as a whole")


# --- addresses and forms -------------------------------------------------------------------------

_KNOWN = (query.CHANNEL, query.SEVERAL_CHANNELS, query.CHANGE_LIST, query.RESOURCE_LIST)


def read_query(data: bytes) -> None:
    how, text = data[0] if data else 0, data[1:]
    known = _KNOWN[how % len(_KNOWN)]
    asked = outcome(lambda: query.parse_query(text, known))
    if isinstance(asked, dict):
        outcome(lambda: query.parse_start(asked))
        outcome(lambda: query.parse_sets(asked))
        outcome(lambda: query.whole_number(asked, "limit", 1, 10, 5))
    outcome(lambda: query.parse_sets_asked(text))
    latin = text.decode("latin-1")
    outcome(lambda: query.parse_cursors(latin))
    moment = outcome(lambda: query.parse_moment(latin))
    if moment != REFUSED:
        check(query.parse_moment(str(moment)) == moment, "a position is not read as it is written")


def read_form(data: bytes) -> None:
    form = outcome(lambda: rules.parse_form(data))
    if form != REFUSED:
        outcome(lambda: _asked(form))
        outcome(lambda: rules.parse_ping(form))
    outcome(lambda: rules.parse_links(data.decode("latin-1")))


def _asked(form: Any) -> None:
    mode = rules.parse_mode(form)
    if mode == "publish":
        return
    asked = rules.parse_subscription_request(form, mode)
    rules.hostname_of(asked.callback)
    rules.authority(asked.callback)
    rules.channel_of(asked.topic, ["http://hub.example"])
    rules.verification_url(asked.callback, mode, asked.topic, "challenge", 1)


# --- packages ------------------------------------------------------------------------------------


def read_zip(data: bytes) -> None:
    outcome(lambda: _unpacked(data))


def _unpacked(data: bytes) -> None:
    package = Package(io.BytesIO(data), "a.zip")
    for number, packed in enumerate(package.resources()):
        check(".." not in packed.path.replace("\\", "/").split("/"), "a path leads out")
        size = sum(map(len, package.content(packed)))
        check(size <= RATIO * len(data) + FREE_BYTES, "a member inflates beyond its bound")
        if number == 20:
            break


# --- connections ---------------------------------------------------------------------------------


class _Errors(logging.Handler):
    """Errors that are only logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


@contextmanager
def _loop() -> Iterator[Callable[[Any], Any]]:
    """Runs something in an event loop that hears of everything that fails in it."""
    errors, loop = _Errors(), asyncio.new_event_loop()
    loop.set_exception_handler(lambda _, context: errors.found.append(str(context)))
    logging.getLogger().addHandler(errors)
    try:
        yield loop.run_until_complete
        check(not errors.found, "; ".join(errors.found))
    finally:
        logging.getLogger().removeHandler(errors)
        loop.close()


_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [\w ]+\r\n")


class _Handshake(asyncio.Protocol):
    """What opens WebSockets; it is fuzzed as `websocket`, once one is open."""

    def __init__(self, **_: object) -> None: ...

    def receive_data(self, data: bytes) -> None: ...


def read_http(data: bytes) -> None:
    how, sent = data[0] if data else 0, data[1:]
    with _loop() as run:
        asked, bodies = run(_http(sent, SIZES[how % len(SIZES)]))
        at_once, bodies_at_once = run(_http(sent, len(sent) or 1))
    # What is answered before its body has come ends the connection, in pieces only.
    check(asked[: len(at_once)] == at_once[: len(asked)], "pieces mean other requests")
    if bodies is not None and bodies_at_once is not None:
        most = len(bodies) if len(asked) < len(at_once) else None
        check(bodies == bodies_at_once[:most], "pieces mean other bodies")


async def _http(sent: bytes, size: int) -> tuple[list[Any], list[bytes] | None]:
    """The requests, and their bodies unless one was refused."""
    peer = Peer()
    peer.config.ws_protocol_class = _Handshake
    for piece in pieces(sent, size):
        if peer.transport.is_closing() or peer.transport.ended:
            break
        await peer.sends(piece)
    peer.slow.set()
    await peer.sends()
    peer.protocol.connection_lost(None)
    await peer.sends()
    statuses = [int(each) for each in _STATUS.findall(peer.transport.written)]
    check(set(statuses) <= {*STATUSES}, "an answer without a status")
    check(len(peer.transport.written) <= WRITTEN_BYTES, "answers without end")
    asked = [(each["method"], each["path"], each["headers"]) for each in peer.scopes]
    return asked, peer.bodies if max(statuses, default=0) < 400 else None


class _Socket(Transport):
    """As much of a transport as an open channel uses."""

    def __init__(self) -> None:
        super().__init__()
        self.socket, self.peer = socket.socketpair()
        self.socket.setblocking(False)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def close_sockets(self) -> bytes:
        """What was written to the socket itself."""
        self.socket.close()
        with self.peer:
            return self.peer.recv(WRITTEN_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class _OfRedis(Transport):
    def get_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.Protocol()


def read_websocket(data: bytes) -> None:
    how, sent = data[0] if data else 0, data[1:]
    with _loop() as run:
        run(_websocket(sent, SIZES[how % len(SIZES)], is_deflated=how % 2 == 1))


async def _websocket(sent: bytes, size: int, *, is_deflated: bool) -> None:
    transport = _Socket()
    reader = SocketReader(transport, ReaderInput(clock=lambda: 0.0), is_deflated=is_deflated)
    try:
        for piece in pieces(sent, size):
            if transport.is_closing():
                break
            reader.receive_data(piece)
        await asyncio.sleep(0)
        reader.connection_lost(None)
    finally:
        written = transport.close_sockets() + transport.written
    check(len(written) <= 2 * len(sent) + 4_096, "more is written than was sent")


def read_redis(data: bytes) -> None:
    how, sent = data[0] if data else 0, data[1:]
    with _loop() as run:
        in_pieces = run(_redis(sent, SIZES[how % len(SIZES)], 1 + how // 8))
        at_once = run(_redis(sent, len(sent) or 1, 1 + how // 8))
        if at_once is not InvalidResponse:  # it may come after all that was asked
            check(repr(in_pieces) == repr(at_once), "pieces mean something else")


async def _redis(sent: bytes, size: int, questions: int) -> object:
    library: Any = SimpleNamespace(socket_timeout=60.0)
    transport = _OfRedis()
    vars(library)["_writer"] = SimpleNamespace(transport=transport)
    vars(library)["_parser"] = _AsyncHiredisParser(socket_read_size=1)
    connection = DirectConnection(library)
    asking = asyncio.ensure_future(connection.ask([("PING",)] * questions))
    await asyncio.sleep(0)
    for piece in pieces(sent, size):
        if asking.done() or transport.is_closing():
            break
        connection.data_received(piece)
    if not asking.done():
        connection.connection_lost(None)
    try:
        answers = await asking
    except RedisError as error:
        return type(error)
    check(len(answers) == questions, "other than so many answers")
    return answers


# --- what a bridge reads --------------------------------------------------------------------------


def read_feed(data: bytes) -> None:
    """Feeds, activities, the notification of a topic: entries that are changes, or a refusal."""
    how, page = data[0] if data else 0, data[1:]
    read = (feed_page, activity_page, notification_page)[how % 3]
    said: list[str] = []
    found = outcome(lambda: read("http://a.example/feed", page, said.append))
    if isinstance(found, FeedPage):
        check(all(key for key, _ in found.entries), "an entry without a key")
        check(
            {change.change for _, change in found.entries} <= {*CHANGE_TYPES},
            "an entry that is no change",
        )
        check((found.begins is None) == (found.ends is None), "a page with half an interval")


def read_oai(data: bytes) -> None:
    """Pages of OAI-PMH, and what their records say of resources."""
    how, page = data[0] if data else 0, data[1:]
    url, has_metadata = "http://a.example/oai", how % 2 == 1
    outcome(lambda: identity_of(url, page))
    found = outcome(lambda: page_of(url, page, ALL if has_metadata else None))
    if not isinstance(found, OaiPage):
        return
    said: list[str] = []
    rule = LocRule("dc:identifier") if has_metadata else LocRule()
    entries = list(changes_of(found, OaiRequest(url, "oai_dc", None), rule, said.append))
    check(len(entries) + len(said) >= len(found.records), "a record that nothing is said of")
    for _, change in entries:
        publishable(with_entry(change, url))
    early_token(page)


TARGETS = {
    "feed": Target(
        read_feed,
        (
            *(
                b"<feed>",
                b"</feed>",
                b"<entry>",
                b"</entry>",
                b"<id>",
                b"</id>",
                b"<link href='a'/>",
            ),
            *(b"<updated>2026-11-20T00:00:00Z</updated>", b"<deleted-entry ref='a'/>", b"<item>"),
            *(b'"orderedItems":', b'"type":"Move"', b'"object":{"id":"a"}', b'"endTime":"2026"'),
            *(b'"type":"Refresh"', b'from="2026-11-20T00:00:00Z"', b'until="1"', b"null", b"[[["),
        ),
    ),
    "oai": Target(
        read_oai,
        (
            *(b"<record>", b"</record>", b"<header>", b"</header>", b"<header status='deleted'>"),
            *(b"<identifier>a</identifier>", b"<datestamp>2026</datestamp>", b"<metadata>"),
            *(b"<resumptionToken>t</resumptionToken>", b"<error code='badArgument'/>", b"&eacute;"),
            *(
                b"<!DOCTYPE a>",
                b"\xe9",
                b"&#x1;",
                b"xmlns=''",
                b"</ListRecords>",
                b"<dc:identifier>",
            ),
        ),
    ),
    "http": Target(
        read_http,
        (
            *(b"GET /quick HTTP/1.1\r\n", b"POST /body HTTP/1.1\r\n", b"Host: h\r\n", b"\r\n"),
            *(
                b"Transfer-Encoding: chunked\r\n",
                b"Content-Length: 3\r\n",
                b"0\r\n\r\n",
                b"3\r\nabc",
            ),
            *(b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"Upgrade: websocket\r\n"),
        ),
    ),
    "websocket": Target(
        read_websocket,
        (
            b"\x89\x80abcd",
            b"\x8a\x80abcd",
            b"\x88\x82abcd\x62\x8a",
            b"\x81\xfe\x10\x00",
            b"\xc1\x81",
        ),
    ),
    "redis": Target(
        read_redis,
        (
            *(
                b"+OK\r\n",
                b":1\r\n",
                b"$-1\r\n",
                b"$3\r\nabc\r\n",
                b"*2\r\n",
                b"-ERR x\r\n",
                b"_\r\n",
            ),
            *(
                b"%1\r\n",
                b">2\r\n",
                b",1.5\r\n",
                b"#t\r\n",
                b"(12\r\n",
                b"~1\r\n",
                b"-MOVED 1 a:b\r\n",
            ),
            *(b"-LOADING x\r\n", b"-ASK x\r\n", b"=5\r\ntxt:a\r\n", b"-\r\n", b"$99999999999\r\n"),
        ),
    ),
    "xml": Target(
        read_xml,
        (
            *(
                b"<url>",
                b"</url>",
                b"<loc>",
                b"</loc>",
                b"<![CDATA[",
                b"]]>",
                b"<!--",
                b"-->",
                b"<?",
            ),
            *(
                b"<!DOCTYPE a>",
                b"&amp;",
                b"&#0;",
                b"<rs:md ",
                b"<rs:ln ",
                b"</urlset>",
                b"xmlns=''",
            ),
            *(b"\xff\xfe", b'encoding="UTF-16"', b'change="deleted"', b"<sitemap>"),
        ),
    ),
    "json": Target(
        _body(_JSON),
        (
            b'"loc":',
            b'"links":[',
            b"{}",
            b"[",
            b"]",
            b"null",
            b"\\ud800",
            b"1e999",
            b'"change":"x"',
        ),
    ),
    "ndjson": Target(_body(_NDJSON), (b"\n", b"\r\n", b"\n\n", b'{"loc":', b"}", b"\x00", b"1e5")),
    "query": Target(
        read_query,
        (b"from=", b"&", b"set=a@", b"%2B", b"+00:00", b"Z", b"2026-11-23", b"limit=", b"until="),
    ),
    "form": Target(
        read_form,
        (
            *(b"hub.mode=subscribe", b"&hub.topic=", b"&hub.callback=http://a/", b"[::1]", b"%00"),
            *(b"&hub.lease_seconds=", b"&hub.secret=", b'<http://a/>; rel="hub"', b"@", b":99999"),
        ),
    ),
    "zip": Target(
        read_zip,
        (b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02", b"PK\x03\x04", b"\xff" * 8),
    ),
}
