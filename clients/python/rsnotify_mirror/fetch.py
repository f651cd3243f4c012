"""One resource over HTTP, checked: small ones in memory, large ones in a file to go on with.

Rules that hold here: nothing is handed on whose length or digest is not what the Source says; a
large file that broke off is continued where it stopped, if the server still has the same. Texts
are asked for in gzip, which is unpacked in memory, to so many bytes at most, or into a part, to as
many as the Source says; that cannot be continued, so every other try asks for them as they are.

A login page or the like, sent in the place of a resource, is recognised without a digest, too.
"""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from mimetypes import guess_type
from threading import Event
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

import msgspec

from rsnotify.errors import TryAgain
from rsnotify.gunzip import CODINGS, BrokenGzip, content_within, unpacked
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify_client.answer import AGAIN, cause_of
from rsnotify_client.network import without_login
from rsnotify_client.resource import Check, SourceResource, digests
from rsnotify_client.threads import given_up_if
from rsnotify_client.transport import Answer
from rsnotify_client.web import (
    SMALL_BYTES,
    Refused,
    Tag,
    Unreachable,
    Web,
    again,
    read,
    refused,
)
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.plan import Have, addresses, media_type
from rsnotify_mirror.room import CopyRoom, FetchPace, NoRoom, RoomShare
from rsnotify_mirror.state import StateRow

HTML = ("text/html", "application/xhtml+xml")
UNTYPED = ("", "application/octet-stream", "binary/octet-stream")
SAME_PAGES = 2  # this many may be what the Source has; the next one is not believed
REMEMBERED = 1_000
HEAD_BYTES = 1024
LOGIN = re.compile(
    r"\b(?:log-?in|log-?on|sign-?in|sso|saml2?|shibboleth|oauth2?|oidc|cas|auth)\b", re.IGNORECASE
)
PASSWORD = re.compile(rb"<input\b[^<>]{0,300}?\btype\s*=\s*[\"']?password\b", re.IGNORECASE)
OF_ONE_VISIT = re.compile(
    rb"\b(?:value|content|nonce|action|href|src)\s*=\s*(?:\"[^\"]*\"|'[^']*')", re.IGNORECASE
)


class LoginPages:
    """Pages that ask for a password, sent with status 200 for the resources of one copy.

    If a Source states no types, a page with a password field may be the resource itself. It is not
    if its name is that of another kind of file, or if several resources are the same page.
    """

    def __init__(self) -> None:
        self._urls: dict[bytes, list[str]] = {}  # by page

    def problem(self, url: str, content: bytes) -> str | None:
        """Why this page is not the resource; None if it may be."""
        head = content[:HEAD_BYTES].lower()
        if not (b"<html" in head or b"<!doctype html" in head) or not PASSWORD.search(content):
            return None
        if guess_type(urlsplit(url).path)[0] not in (None, *HTML):
            return "is a page in HTML that asks for a password"
        if len(self._urls) >= REMEMBERED:
            self._urls.clear()
        page = hashlib.sha256(OF_ONE_VISIT.sub(b"", content), usedforsecurity=False).digest()
        urls = self._urls.setdefault(page, [])
        if url in urls:
            return None
        if len(urls) < SAME_PAGES:
            urls.append(url)
            return None
        return f"is the same page as {' and '.join(urls)}, and asks for a password"


def is_unverified(wanted: SourceResource) -> bool:
    """Whether the Source states nothing that would show a wrong content."""
    return wanted.length is None and not digests(wanted.hash)


def unlike(url: str, wanted: SourceResource, answer: Answer) -> str | None:
    """Why an answer is not the resource, as far as its address and its type show."""
    if digests(wanted.hash):
        return None
    came = media_type(answer.headers.get("content-type"))
    if answer.url != without_login(url):
        return _ends_elsewhere(url, wanted, answer, came)
    stated = media_type(wanted.type)
    if wanted.length is None and came in HTML and stated not in (*HTML, *UNTYPED):
        return f"is sent as {came}, but the Source says {stated}"
    return None


def _ends_elsewhere(url: str, wanted: SourceResource, answer: Answer, came: str) -> str | None:
    """Why the target of a redirect is not the resource."""
    to = f"is redirected to {answer.url}"
    if wanted.type is not None and came not in (media_type(wanted.type), *UNTYPED):
        return f"{to}, which is {came}, but the Source says {media_type(wanted.type)}"
    if came not in HTML or media_type(wanted.type) in HTML:
        return None
    parts = urlsplit(answer.url)
    if LOGIN.search(f"{parts.hostname}{parts.path}"):
        return f"{to}, which looks like a login page"
    if guess_type(urlsplit(url).path)[0] not in (None, *HTML):
        return f"{to}, which is a page in HTML"
    return None


LARGE_AT_ONCE = 3
LARGE_READ_BYTES = 512 * 1024
WRITE_BYTES = 64 * 1024  # ext4 takes two to five times as long for more at once, in long files
REPORTED_BYTES = 4 * 1024 * 1024
GONE = (404, 410)
ASKS_FOR_GZIP = {"Accept-Encoding": "gzip"}
TEXT = re.compile(
    r"text/.*|application/(?:.*[+-])?(?:json|xml|javascript|ndjson|n-triples|n-quads|sql|yaml)"
    r"|.*\+(?:json|xml|yaml)"
)


class Fetched(msgspec.Struct, frozen=True):
    """A resource that is what the Source says; `content` is None if it is in the part."""

    have: Have
    content: bytes | None
    length: int


class NotModified(Exception):
    """The server has what the copy has; `asked` is when, by its own clock."""

    def __init__(self, asked: int | None) -> None:
        super().__init__()
        self.asked = asked


class Missing(Exception):
    """The server has no such resource."""

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answers {status}")
        self.status = status


class Mismatch(TryAgain):
    """What came is not what the Source says; it may be, a moment later."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, retry_after_seconds=0)


Progress = Callable[[int], None]
KeepPart = Callable[[str, Have | None], None]


class Fetcher:
    """Fetches for one mirror."""

    def __init__(
        self,
        web: Web,
        disk: Disk,
        room: CopyRoom,
        pace: FetchPace,
        keep_part: KeepPart,
        progress: Progress,
    ) -> None:
        self._web = web
        self._room, self._pace = room, pace
        self._disk = disk
        self._keep_part = keep_part
        self._progress = progress
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._login_pages = LoginPages()

    async def fetch(self, row: StateRow, *, is_package: bool = False) -> Fetched:
        """From the best address that has it; what the last one said is raised if none has."""
        known, have = row.wanted.length, row.have
        if known is not None and (have is None or have.length != known):
            self._admit(row, known, is_package=is_package)  # else it may be the same as before
        problem: Exception = Refused(f"{row.loc} has no address")
        for number, url in enumerate(addresses(row.wanted)):
            try:
                its = {"is_own": url == row.wanted.loc, "is_package": is_package}
                return await self._from(url, row, **its)
            except (TryAgain, Refused, Missing) as error:
                if number == 0 or url == row.wanted.loc:
                    problem = error
        raise problem

    def _admit(self, row: StateRow, length: int | None, *, is_package: bool) -> None:
        begun = self._disk.part_length(row.loc) if row.part else 0
        its = {"begun": begun, "replaced": row.held_bytes}
        self._room.admit(row.loc, length, **its, is_one=not is_package)

    async def _from(self, url: str, row: StateRow, *, is_own: bool, is_package: bool) -> Fetched:
        headers = self._conditions(row) if is_own else {}
        try:
            begun = await self._web.threads.run(self._begin, url, headers, row)
        except Mismatch:
            if "Range" in headers:
                self._drop_part(row.loc)
            raise
        if isinstance(begun, Fetched):
            self._progress(begun.length)
            self._check_login(url, row, begun.content or b"")
            if not is_package:
                self._room.check_file(row.loc, begun.length)
            if seconds := self._pace.seconds_after(begun.length):
                await asyncio.sleep(seconds)
            return begun
        try:
            async with self._large:
                fetched = await self._into_part(url, row, begun, is_package=is_package)
        finally:
            begun.close()
        if is_unverified(row.wanted) and fetched.length <= SMALL_BYTES:
            with self._disk.open_part(row.loc, keep=True) as file:
                self._check_login(url, row, file.read())
        return fetched

    def _check_login(self, url: str, row: StateRow, content: bytes) -> None:
        if not is_unverified(row.wanted):
            return
        if (why := self._login_pages.problem(url, content)) is not None:
            self._drop_part(row.loc)
            raise Mismatch(f"{url} {why}")

    def _begin(self, url: str, headers: Mapping[str, str], row: StateRow) -> Fetched | Answer:
        wanted = row.wanted
        if "Range" not in headers and asks_for_gzip(url, row):
            answer = self._answer(url, {**headers, **ASKS_FOR_GZIP})
            begun = _begin(url, wanted, answer, may_be_packed=True)
            if begun is not None:
                return begun
        begun = _begin(url, wanted, self._answer(url, headers))
        assert begun is not None  # noqa: S101 - nothing is unpacked
        return begun

    def _answer(self, url: str, headers: Mapping[str, str]) -> Answer:
        """The answer. A part (206) or "not modified" (304) counts only if it was asked for."""
        answer = self._web.answer(url, headers)
        begin = headers.get("Range", "").removeprefix("bytes=")
        is_asked_for = {
            206: begin and answer.headers.get("content-range", "").startswith(f"bytes {begin}"),
            304: "If-None-Match" in headers or "If-Modified-Since" in headers,
        }
        if not is_asked_for.get(answer.status, True):
            answer.close()
            raise Mismatch(f"{url} is answered with {answer.status}, which was not asked for")
        if answer.status == 206 and _validator(_resumable(answer)) != headers["If-Range"]:
            answer.close()
            raise Mismatch(f"{url} goes on without showing that it is the same file as before")
        return answer

    def _conditions(self, row: StateRow) -> dict[str, str]:
        """The headers to continue a part, or to ask for a change where the lists cannot tell."""
        length = self._disk.part_length(row.loc) if row.part else 0
        if row.part is not None and length:
            return {"Range": f"bytes={length}-", "If-Range": _validator(row.part)}
        if row.have is None or row.path is None or digests(row.wanted.hash):
            return {}
        return {} if self._disk.status(row.path) is None else condition_of(row.have)

    async def _into_part(
        self, url: str, row: StateRow, answer: Answer, *, is_package: bool
    ) -> Fetched:
        check = Check(row.wanted.length, row.wanted.hash)
        is_packed = asks_for_gzip(url, row) and is_long_gzip(row.wanted, answer)
        length = row.wanted.length
        if length is None and answer.status == 200 and not is_packed:
            length = answer.length
        self._admit(row, length, is_package=is_package)
        try:
            with (
                self._disk.open_part(row.loc, keep=answer.status == 206) as file,
                self._room.kept_for(
                    (length or 0) - os.fstat(file.fileno()).st_size,
                    (length or 0) - row.held_bytes,
                ) as share,
            ):
                if answer.status == 200:
                    self._keep_part(row.loc, _resumable(answer))
                receiving = Receiving(
                    *(url, row.wanted, is_packed, check, self._progress_in_thread(share)),
                    partial(
                        self._room.check_growing,
                        row.loc,
                        replaced=row.held_bytes,
                        is_one=not is_package,
                    ),
                    self._pace,
                    Event(),
                )
                abort = partial(receiving.abort, answer)
                await self._web.threads.run(receiving.receive, answer, file, abort=abort)
            total = answer.headers.get("content-range", "").rpartition("/")[2]
            if answer.status == 206 and total not in ("*", str(check.length)):
                raise Mismatch(f"{url} has {total} bytes, but ends after {check.length}")
            _verify(url, check)
        except (Mismatch, NoRoom):
            self._drop_part(row.loc)
            raise
        return Fetched(_have(row.wanted, check.length, answer), None, check.length)

    def _drop_part(self, loc: str) -> None:
        """Drop a part that does not lead to the resource: the next try begins from nothing."""
        self._disk.drop_part(loc)
        self._keep_part(loc, None)

    def _progress_in_thread(self, share: RoomShare) -> Progress:
        """`_progress`, for another thread to call."""
        loop = asyncio.get_running_loop()

        def came(count: int) -> None:
            share.came(count)
            self._progress(count)

        def progress(count: int) -> None:
            loop.call_soon_threadsafe(came, count)

        return progress


def _begin(
    url: str, wanted: SourceResource, answer: Answer, *, may_be_packed: bool = False
) -> Fetched | Answer | None:
    """The whole, if it is small; else the answer, its body still to come.

    None for what is packed and too long to be unpacked here.
    """
    is_open = False
    try:
        _check(url, wanted, answer)
        if may_be_packed and _encoding(answer) in CODINGS:
            is_open = is_long_gzip(wanted, answer)
            return answer if is_open else _unpacked(url, wanted, answer)
        _check_encoding(url, wanted, answer)
        is_open = answer.status == 206 or answer.length is None or answer.length > SMALL_BYTES
        return answer if is_open else _small(url, wanted, read(answer, answer.length or 0), answer)
    finally:
        if not is_open:
            answer.close()


def asks_for_gzip(url: str, row: StateRow) -> bool:
    """Whether to ask for gzip: for a long file every other time, as gzip cannot be continued."""
    is_long = row.wanted.length is not None and row.wanted.length > SMALL_BYTES
    return may_be_compressed(url, row.wanted) and not (is_long and row.attempts % 2)


def may_be_compressed(url: str, wanted: SourceResource) -> bool:
    """Whether it may be a text, which is asked for in gzip."""
    path = url.partition("#")[0].partition("?")[0]
    kind = media_type(wanted.type) or _guessed(path.rpartition("/")[2])
    return kind in UNTYPED or TEXT.fullmatch(kind) is not None


def _guessed(name: str) -> str:
    """The type by the end of the name; packed files have one that says so.

    >>> [_guessed(name) for name in ("a.csv", "a.csv.gz", "a")]
    ['text/csv', 'gzip', '']
    """
    return _guessed_by_end(name.rpartition(".")[2]) if "." in name else ""


@lru_cache(maxsize=100)
def _guessed_by_end(end: str) -> str:
    kind, packed = guess_type(f"a.{end}")
    return packed or kind or ""


def _encoding(answer: Answer) -> str:
    return answer.headers.get("content-encoding", "").strip().lower()


def _check_encoding(url: str, wanted: SourceResource, answer: Answer) -> None:
    """Refuse an encoding that nobody asked for, unless the content can be verified as it is.

    Without a length or a digest, only a file can that is packed by its name or type.
    """
    encoding = _encoding(answer)
    if encoding in ("", "identity"):
        return
    if answer.status == 206:
        raise Mismatch(f"{url} goes on in {encoding}, which was not asked for")
    if wanted.length is None and not digests(wanted.hash) and may_be_compressed(url, wanted):
        raise Mismatch(f"{url} is sent in {encoding}, which was not asked for")


def _unpacked(url: str, wanted: SourceResource, answer: Answer) -> Fetched | None:
    """The content of an answer in gzip; or the gzip itself, if that is what the Source means."""
    if (answer.length or 0) > SMALL_BYTES:
        return None
    packed = read(answer, SMALL_BYTES + 1)
    if len(packed) > SMALL_BYTES:
        return None
    is_known = wanted.length is not None or digests(wanted.hash)
    if not packed:
        return _small(url, wanted, packed, answer)
    if is_known:
        with suppress(Mismatch):
            return _small(url, wanted, packed, answer)
    try:
        content = content_within(SMALL_BYTES if wanted.length is None else wanted.length, packed)
    except BrokenGzip as error:
        raise _no_gzip(url, error) from None
    if content is not None:
        return _small(url, wanted, content, answer)
    if wanted.length is None:
        return None
    raise _too_long(url, wanted)


def _check(url: str, wanted: SourceResource, answer: Answer) -> None:
    if answer.status == 304:
        raise NotModified(_date(answer.headers.get("date")))
    if answer.status in GONE:
        raise Missing(url, answer.status)
    if answer.status in AGAIN:
        raise again(url, answer)
    if answer.status == 416:
        raise Mismatch(f"{url} is shorter than what was there of it")
    if answer.status in (200, 206) and (why := unlike(url, wanted, answer)) is not None:
        raise Mismatch(f"{url} {why}")
    if answer.status not in (200, 206):
        raise refused(url, answer.status, challenge=answer.headers.get("www-authenticate"))


def _small(url: str, wanted: SourceResource, content: bytes, answer: Answer) -> Fetched:
    check = Check(wanted.length, wanted.hash)
    check.update(content)
    _verify(url, check)
    return Fetched(_have(wanted, len(content), answer), content, len(content))


def _verify(url: str, check: Check) -> None:
    if (problem := check.problem()) is not None:
        raise Mismatch(f"{url}: {problem}")


def _have(wanted: SourceResource, length: int, answer: Answer) -> Have:
    tag, asked = Tag.of(answer.headers), _date(answer.headers.get("date"))
    return Have(wanted.lastmod, length, wanted.hash, tag.etag, tag.modified, asked)


@lru_cache(maxsize=100)
def _date(text: str | None) -> int | None:
    """Seconds since 1970; cached, as many answers come in one second."""
    seconds = date_seconds(text)
    return None if seconds is None else int(seconds)


STRONG_SECONDS = 60  # a time proves a file if it is so much older than the answer


def _resumable(answer: Answer) -> Have | None:
    """The strong validator by which parts are known to be of one file (RFC 9110 §8.8.1).

    A weak tag is none, nor is a time of the minute before the answer. None where the answer has
    none: a server may ignore `If-Range`, and go on with another file than it began with.
    """
    if _encoding(answer) not in ("", "identity"):
        return None
    tag = Tag.of(answer.headers)
    if tag.etag and not tag.etag.startswith("W/"):
        return Have(etag=tag.etag)
    modified, asked = _date(tag.modified), _date(answer.headers.get("date"))
    if modified is None or asked is None or asked - modified < STRONG_SECONDS:
        return None
    return Have(modified=tag.modified, asked=asked)


def _validator(found: Have | None) -> str:
    """As it stands in `If-Range`; nothing if there is none."""
    return "" if found is None else found.etag or found.modified or ""


def condition_of(have: Have) -> dict[str, str]:
    """The headers by which a server says that it has the same file as the copy."""
    return {} if _may_change_unseen(have) else Tag(have.etag, have.modified).condition


def _may_change_unseen(have: Have) -> bool:
    """A file that was sent in the second of its date may have changed later in that second."""
    return have.asked is not None and (_date(have.modified) or 0) >= have.asked


class Receiving(NamedTuple):
    """Writes an answer into a part, and verifies it as far as that can be done before its end."""

    url: str
    wanted: SourceResource
    is_packed: bool
    check: Check
    progress: Progress
    check_growing: Progress
    pace: FetchPace
    stopped: Event

    def abort(self, answer: Answer) -> None:
        """End it, whether it reads or rests."""
        self.stopped.set()
        answer.abort()

    def receive(self, answer: Answer, file: BinaryIO) -> None:
        """In a thread: write the body into the file, and check it."""
        if answer.status == 206:
            _reread(file, self.check)
        with given_up_if(self.stopped.is_set):
            self._receive(answer, file)

    def _receive(self, answer: Answer, file: BinaryIO) -> None:
        unreported = 0
        for piece in self._pieces(answer):
            self.check.update(piece)
            if self.wanted.length is not None and self.check.length > self.wanted.length:
                raise _too_long(self.url, self.wanted)
            left = memoryview(piece)
            while left:
                left = left[file.write(left[:WRITE_BYTES]) :]
            unreported += len(piece)
            if unreported >= REPORTED_BYTES:
                self.progress(unreported)
                self.check_growing(self.check.length)
                unreported = 0
        self.progress(unreported)
        self.check_growing(self.check.length)

    def _pieces(self, answer: Answer) -> Iterator[bytes | memoryview]:
        if not self.is_packed:
            yield from _pieces(answer, self.pace)
            return
        try:
            yield from unpacked(_pieces(answer, self.pace))
        except BrokenGzip as error:
            raise _no_gzip(self.url, error) from None


def is_long_gzip(wanted: SourceResource, answer: Answer) -> bool:
    """Whether the answer is gzip, too long for memory, and not the gzip that the Source means."""
    return (
        wanted.length is not None
        and wanted.length > SMALL_BYTES
        and answer.status == 200
        and _encoding(answer) in CODINGS
        and answer.length != wanted.length
    )


def _too_long(url: str, wanted: SourceResource) -> Mismatch:
    return Mismatch(f"{url} has more than {wanted.length} bytes, which the Source says")


def _no_gzip(url: str, error: BrokenGzip) -> Mismatch:
    return Mismatch(f"{url} is no whole gzip: {error.why}")


def _pieces(answer: Answer, pace: FetchPace) -> Iterator[memoryview]:
    """The pieces of the body; each is overwritten by the next."""
    room = memoryview(bytearray(pace.piece_bytes(LARGE_READ_BYTES)))
    try:
        while count := answer.readinto(room):
            yield room[:count]
            pace.rest(count)
    except OSError as error:
        raise Unreachable(answer.url, cause_of(error)) from None


def _reread(part: BinaryIO, check: Check) -> None:
    """Check what the part has already; without a digest its length is enough."""
    if not check.has_digest:
        check.length = part.seek(0, os.SEEK_END)
    while piece := part.read(SMALL_BYTES):
        check.update(piece)
