"""OAI-PMH 2.0: requests, what a repository says of itself, and a list of records page by page.

Rules that hold here: the time of a list is the repository's own; tokens that loop, expire or never
end end the reading, and a list that ends too early is noticed; while one page is read the next one
comes. What is wrong with the XML of a page is corrected and reported if its meaning is certain
(`markup`).
"""

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from html import unescape
from time import time
from typing import NamedTuple
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit, urlunsplit

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import (
    EARLIEST_SECOND,
    MICROSECONDS,
    Position,
    is_w3c_datetime,
)
from rsnotify.resourcesync.retry import DIGITS, Backoff
from rsnotify_bridge.markup import PAGE_BYTES, Element, read_markup
from rsnotify_client.answer import AGAIN
from rsnotify_client.missing import GONE_STATUSES, ProbeResult, result_by_record
from rsnotify_client.notification import position_of
from rsnotify_client.web import XML_FIRST, Refused, Web, again, refused, retry_after

log = logging.getLogger(__name__)

PREFIX = "oai:"
DAY, SECOND = "YYYY-MM-DD", "YYYY-MM-DDThh:mm:ssZ"
LOOK_BACK_SECONDS = 86_400
OVERLAP_SECONDS = 60  # a record may be stored a while after it was stamped
EXPIRED = 3  # so often a harvest is begun because a token is known no longer
MAX_PAGES = 200_000
STALE_PAGES = 100
NAME_CHARS = 8 * 1024  # of a resumption token, and of an identifier
FIELD_CHARS = 64 * 1024  # of an element that is kept; a longer one is left out
MARKS = 16 * 1024 * 1024  # for identifiers that were seen, however many there are
TRIES = 5
BACKOFF = Backoff(1.0, 30.0, certain=0.5)
WAIT_SECONDS = 300.0
SEND_SECONDS = 0.001
COUNTS = ("completeListSize", "cursor")
_TOKEN = re.compile(rb"<(?:\w+:)?resumptionToken\b[^>]*>([^<]{1,8192})</(?:\w+:)?resumptionToken>")


ALL = ""
Wanted = str | None
"""The element of the metadata that is kept; `ALL`: each; None: the metadata is not asked for."""


class OaiRecord(NamedTuple):
    """One record: its header and, where they were asked for, elements of its metadata.

    `fields` has the text of each element, without that of the elements in it.
    """

    identifier: str
    datestamp: str
    is_deleted: bool
    fields: Mapping[str, Sequence[str]]


class OaiPage(NamedTuple):
    """One answer."""

    records: list[OaiRecord]
    token: str | None
    response_date: str | None
    error: str | None
    words: str
    nameless: int  # records without an identifier
    repairs: tuple[str, ...]
    announced: int = 0  # records of the list, or of its pages before this one, as the token says
    size: int = 0  # records of the list alone


class OaiIdentity(NamedTuple):
    """What a repository says of itself."""

    name: str
    granularity: str
    deleted: str


class OaiRequest(NamedTuple):
    """Where and for what a repository is asked."""

    base: str
    prefix: str
    set_spec: str | None

    @classmethod
    def of(cls, address: str) -> "OaiRequest":
        """What `oai:URL?metadataPrefix=…&set=…` means.

        >>> OaiRequest.of("oai:https://a.example/oai?db=1&set=math")
        OaiRequest(base='https://a.example/oai?db=1', prefix='oai_dc', set_spec='math')
        """
        parts = urlsplit(address.removeprefix(PREFIX))
        if parts.scheme not in ("http", "https"):
            raise InvalidSettings(f"{address}: write oai: and the address, oai:https://…")
        query = parse_qsl(parts.query, keep_blank_values=True)
        asked = dict(query)
        ours = ("verb", "metadataPrefix", "set", "from", "until", "resumptionToken")
        rest = [pair for pair in query if pair[0] not in ours]
        base = urlunsplit(parts._replace(query=urlencode(rest)))
        return cls(base, asked.get("metadataPrefix") or "oai_dc", asked.get("set") or None)

    def url(self, verb: str, **arguments: str | None) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        joint = "&" if "?" in self.base else "?"
        return f"{self.base}{joint}{urlencode({'verb': verb, **given}, safe=':')}"

    def listing(self, verb: str, from_: str | None) -> str:
        asked = {"metadataPrefix": self.prefix, "set": self.set_spec, "from": from_}
        return self.url(verb, **asked)

    def record(self, identifier: str) -> str:
        """Of each record, so without a detour over `url`."""
        joint = "&" if "?" in self.base else "?"
        name, prefix = (quote_plus(each, safe=":") for each in (identifier, self.prefix))
        return f"{self.base}{joint}verb=GetRecord&identifier={name}&metadataPrefix={prefix}"


def identity_of(url: str, data: bytes) -> OaiIdentity:
    root = read_markup(url, data).root
    found = root.child("Identify")
    if root.name != "OAI-PMH" or found is None:
        raise Rejected(f"{url} does not answer as an OAI-PMH repository does")
    granularity = found.text_of("granularity") or DAY
    return OaiIdentity(
        (found.text_of("repositoryName") or "")[:200],
        SECOND if "ss" in granularity.lower() else DAY,
        (found.text_of("deletedRecord") or "no").lower(),
    )


async def identify(web: Web, request: OaiRequest) -> OaiIdentity:
    """What the repository answers when it is asked what it is."""
    url = request.url("Identify")
    page = await web.page(url, cap=PAGE_BYTES)
    if page.status != 200:
        raise refused(url, page.status, challenge=page.challenge)
    return identity_of(url, page.body)


def page_of(url: str, data: bytes, wanted: Wanted) -> OaiPage:
    """One page of a list; raises `Rejected` for what is no answer of OAI-PMH."""
    markup = read_markup(url, data)
    root = markup.root
    if root.name != "OAI-PMH":
        raise Rejected(f"{url} sent <{root.name}>, which is no answer of OAI-PMH")
    error = root.child("error")
    listed = root.child("ListRecords", "ListIdentifiers")
    if error is None and listed is None:
        raise Rejected(f"{url} sent neither records nor an error")
    records: list[OaiRecord] = []
    nameless, token, announced, size = 0, None, 0, 0
    for each in listed.children() if listed is not None else ():
        if each.name == "resumptionToken":
            token, announced = each.text or token, max(_count(each.get(name)) for name in COUNTS)
            size = _count(each.get(COUNTS[0]))
            if len(token or "") > NAME_CHARS:
                raise Rejected(
                    f"{url} has a resumption token of more than {NAME_CHARS:,} characters"
                )
        elif (record := _record(each, wanted)) is not None:
            records.append(record)
        else:
            nameless += each.name in ("record", "header")
    code = None if error is None else error.get("code") or "unknown"
    words = "" if error is None else error.text[:200]
    date = root.text_of("responseDate")
    return OaiPage(records, token, date, code, words, nameless, markup.repairs, announced, size)


def result_in(identifier: str, url: str, status: int, data: bytes) -> ProbeResult:
    """What an answer to `GetRecord` says of this record; `Rejected` if it is none of OAI-PMH."""
    root = read_markup(url, data).root
    if root.name != "OAI-PMH":
        raise Rejected(f"{url} sent <{root.name}>, which is no answer of OAI-PMH")
    error = root.child("error")
    is_deleted = any(
        each.name == "header"
        and each.get("status") == "deleted"
        and each.text_of("identifier") == identifier
        for each in root.all()
    )
    code = None if error is None else error.get("code") or "an error"
    return result_by_record(identifier, status, code, is_deleted=is_deleted)


def _count(text: str | None) -> int:
    """A number that anybody can have meant; 0 for others."""
    return int(text) if text and text.isdecimal() and len(text) <= DIGITS else 0


def _record(element: Element, wanted: Wanted) -> OaiRecord | None:
    header = element if element.name == "header" else element.child("header")
    identifier = header and header.text_of("identifier")
    if header is None or not identifier or len(identifier) > NAME_CHARS:
        return None
    fields: dict[str, list[str]] = {}
    metadata = element.child("metadata") if wanted is not None else None
    for each in metadata.all() if metadata is not None else ():
        names = [name for name in (f"{each.prefix}:{each.name}", each.name)
                 if wanted in (ALL, name)]  # fmt: skip
        if names and 0 < len(text := each.own_text) <= FIELD_CHARS:
            for name in names:
                fields.setdefault(name, []).append(text)
    stamp = header.text_of("datestamp") or ""
    return OaiRecord(identifier, stamp, header.get("status") == "deleted", fields)


def early_token(data: bytes) -> str | None:
    """The token at the end of a page, before the page is read."""
    found = _TOKEN.search(data[-16 * 1024 :])
    return None if found is None else unescape(found[1].decode(errors="replace")).strip() or None


def from_of(cursor: str | None, granularity: str) -> str | None:
    """The `from` of a request after a cursor, in the granularity that the repository has.

    >>> from_of("2026-11-20T00:00:30Z", SECOND), from_of("2026-11-20T12:00:00Z", DAY)
    ('2026-11-19T23:59:30Z', '2026-11-20')
    """
    at = position_of(cursor)
    if at is None:
        return None
    if granularity == SECOND:
        return str(_before(at, OVERLAP_SECONDS))[:19] + "Z"
    return str(at)[:10]


def _before(at: Position, seconds: int) -> Position:
    """Some seconds earlier; a repository may stamp with the first second that there is."""
    return Position(max(at - seconds * MICROSECONDS, EARLIEST_SECOND * MICROSECONDS))


def cursor_after(
    cursor: Position | None, response: Position | None, newest: Position | None, now: Position
) -> Position | None:
    """Where the next harvest goes on: at the newest record, though a day back at most.

    Records may be stamped by another clock than answers are, and either may be hours off: none is
    lost where it goes on at what it has seen, and at no time that has not come yet.
    """
    back = None if response is None else _before(response, LOOK_BACK_SECONDS)
    known = [each for each in (cursor, newest, back) if each is not None]
    return min(max(known), response or now, now) if known else None


def stamp_of(record: OaiRecord) -> str | None:
    """Its datestamp as a time of ours, None if it is none."""
    text = record.datestamp.strip().replace(" ", "T")
    if "T" in text and not re.search(r"(Z|[+-]\d\d:\d\d)$", text):
        text += "Z"
    return text if is_w3c_datetime(text) else None


def has_new(records: Sequence[OaiRecord], seen: bytearray) -> bool:
    """Whether one of them was not seen, and mark all; of many records, chance may hide a few."""
    marks = {hash(each.identifier) % len(seen) for each in records}
    is_new = not all(seen[each] for each in marks)
    for each in marks:
        seen[each] = 1
    return is_new


class TokenExpired(Exception):
    """The repository does not know its token any more."""


class Harvest:
    """Lists of one repository; `next_cursor` says where the next one goes on."""

    def __init__(self, web: Web, request: OaiRequest, granularity: str, *, wanted: Wanted) -> None:
        self._web, self._request = web, request
        self._wanted = wanted
        self.granularity = granularity
        self.response_date: Position | None = None
        self.newest: Position | None = None
        self.read = self.announced = 0  # records of the list
        self._pages_read, self._sizes, self._is_restamped = 0, set[int](), False

    def next_cursor(self, cursor: str | None) -> str | None:
        now = Position(int(time() * MICROSECONDS))
        known = cursor_after(position_of(cursor), self.response_date, self.newest, now)
        return None if known is None else str(known)

    @property
    def shortfall(self) -> str | None:
        """How many records came, and how many were announced, if those were more."""
        said = f"the list ended after {self.read} records, though it announced {self.announced}"
        return said if self.announced > self.read else None

    def may_have_moved(self, *, keeps_deleted: bool) -> bool:
        """Whether a record may have slipped from a page to one that was read before it.

        That is seen by the size of the list, or by a record that was stamped meanwhile. Where
        neither is said of records that vanish, it cannot be seen.
        """
        is_seen = len(self._sizes) > 1 or self._is_restamped
        return self._pages_read > 1 and (is_seen or not (self._sizes or keeps_deleted))

    @property
    def verb(self) -> str:
        return "ListIdentifiers" if self._wanted is None else "ListRecords"

    async def pages(self, cursor: str | None) -> AsyncGenerator[OaiPage, None]:
        """All pages; from the first one again where a token has expired."""
        for left in reversed(range(EXPIRED)):
            try:
                async with aclosing(self._pages(cursor)) as pages:
                    async for page in pages:
                        yield page
            except TokenExpired as error:
                if not left:
                    why = f"its resumption tokens expired in {EXPIRED} harvests: {error}"
                    raise Refused(f"{self._request.base}: {why}") from None
                log.warning("%s: %s; harvesting it again", self._request.base, error)
            else:
                return

    async def _pages(self, cursor: str | None) -> AsyncGenerator[OaiPage, None]:
        from_ = from_of(cursor, self.granularity)
        url = self._request.listing(self.verb, from_)
        tokens, seen, stale, is_first = set[int](), bytearray(MARKS), 0, True
        self.read = self.announced = 0
        self._pages_read, self._sizes, self._is_restamped = 0, set(), False
        self.response_date = self.newest = None
        coming = asyncio.create_task(self._fetched(url))
        try:
            while True:
                data, asked = await coming, url
                if (early := early_token(data)) is not None and hash(early) not in tokens:
                    url = self._request.url(self.verb, resumptionToken=early)
                    coming = asyncio.create_task(self._fetched(url))
                    await asyncio.sleep(SEND_SECONDS)  # a thread sends it; reading holds that up
                page = await self._web.threads.run(page_of, asked, data, self._wanted)
                is_refused = is_first and page.error == "badArgument"
                if is_refused and from_ and self.granularity != DAY:
                    self.granularity, from_ = DAY, from_of(cursor, DAY)
                    log.info("%s takes days, though it speaks of seconds", self._request.base)
                    url = self._request.listing(self.verb, from_)
                    coming = asyncio.create_task(self._fetched(url))
                    continue
                self._judge(page, asked)
                self._note(page)
                is_first = False
                for repair in page.repairs:
                    log.info("%s: %s", asked, repair)
                yield page
                if page.token is None:
                    return
                stale = 0 if has_new(page.records, seen) else stale + 1
                self._check_token(page.token, tokens, stale)
                if page.token != early:
                    await _given_up(coming)
                    url = self._request.url(self.verb, resumptionToken=page.token)
                    coming = asyncio.create_task(self._fetched(url))
        finally:
            await _given_up(coming)

    def _note(self, page: OaiPage) -> None:
        """When the harvest began, the newest of its records, and how many there are to be."""
        self.announced = page.announced or self.announced
        if page.error is not None and not self.announced:
            self.announced = self.read and self.read + 1  # there is a token where more is to come
        self.read += len(page.records) + page.nameless
        self.response_date = self.response_date or position_of(page.response_date)
        newest = max((each.datestamp for each in page.records), default=None)
        self._pages_read += 1
        self._sizes |= {page.size} - {0}
        began, last = self.response_date, position_of(newest)
        self._is_restamped |= began is not None and last is not None and last >= began
        self.newest = max(filter(None, (self.newest, position_of(newest))), default=None)

    def _judge(self, page: OaiPage, url: str) -> None:
        if page.error in (None, "noRecordsMatch"):
            return
        if page.error == "badResumptionToken":
            raise TokenExpired(page.words or "the token is not known")
        raise Refused(f"{url}: the repository says {page.error}: {page.words}")

    def _check_token(self, token: str, tokens: set[int], stale: int) -> None:
        base = self._request.base
        if hash(token) in tokens:
            raise Refused(f"{base}: its resumption tokens go in a circle, at {token[:80]!r}")
        tokens.add(hash(token))
        if len(tokens) > MAX_PAGES:
            raise Refused(f"{base} has more than {MAX_PAGES:,} pages")
        if stale >= STALE_PAGES:
            pages = f"{STALE_PAGES} pages without a new record, one after the other"
            raise Refused(f"{base} sent {pages}")

    async def probe(self, identifier: str) -> ProbeResult:
        """Whether the repository has this record no longer, or has it as a deleted one."""
        url = self._request.record(identifier)
        async with self._web.ask(url, headers={"Accept": XML_FIRST}) as answer:
            if answer.status not in (200, *GONE_STATUSES):  # some answer so with an error of OAI
                seconds = retry_after(answer.headers.get("retry-after"))
                return result_by_record(identifier, answer.status, None, wait_seconds=seconds)
            data = await answer.read(PAGE_BYTES)
        read = partial(result_in, identifier, url, answer.status)
        return await self._web.threads.run(read, data)

    async def _fetched(self, url: str) -> bytes:
        """A page; where the repository asks to wait for minutes, its token is not lost."""
        for attempt in range(TRIES):
            try:
                return await self._page(url)
            except TryAgain as error:
                asked = error.retry_after_seconds
                if attempt + 1 == TRIES or asked > WAIT_SECONDS:
                    raise
                wait = BACKOFF.seconds(attempt, random.random(), asked)  # noqa: S311
                log.info("%s: it is asked again in %d s", error.detail, wait)
                await asyncio.sleep(wait)
        raise AssertionError

    async def _page(self, url: str) -> bytes:
        """Read at once, for between two pieces the next request waits."""
        async with self._web.ask(url, headers={"Accept": XML_FIRST}) as answer:
            if answer.status in AGAIN:
                raise again(url, answer)
            if answer.status != 200:
                challenge = answer.headers.get("www-authenticate")
                raise refused(url, answer.status, challenge=challenge)
            data = await answer.read(PAGE_BYTES)
            if len(data) >= PAGE_BYTES:
                raise Refused(f"{url} is longer than {PAGE_BYTES} bytes: it is not read")
            return data


async def _given_up(task: "asyncio.Task[bytes]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
