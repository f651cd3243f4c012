"""One resource over HTTP, checked: small ones in memory, large ones in a file to go on with.

Rules that hold here: nothing is handed on whose length or digest is not what the Source says; a
large file that broke off is continued where it stopped, if the server still has the same one. Only
small texts are asked for in gzip, and unpacked in memory, to so many bytes at most; whatever goes
into a part is asked for as it is.
"""

import asyncio
import os
import re
import zlib
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from mimetypes import guess_type
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec

from rsnotify.errors import TryAgain
from rsnotify_client.cause import cause_of
from rsnotify_client.network import without_login
from rsnotify_client.resource import SourceResource, checker, digests
from rsnotify_client.transport import READ_BYTES, Answer
from rsnotify_client.web import (
    AGAIN,
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
from rsnotify_mirror.plan import Have, addresses
from rsnotify_mirror.state import Row

LARGE_AT_ONCE = 3
REPORTED_BYTES = 4 * 1024 * 1024
GONE = (404, 410)
HTML = ("text/html", "application/xhtml+xml")
UNTYPED = ("", "application/octet-stream", "binary/octet-stream")
GZIP = ("gzip", "x-gzip")
ASKS_FOR_GZIP = {"Accept-Encoding": "gzip"}
TEXT = re.compile(
    r"text/.*|application/(?:.*[+-])?(?:json|xml|javascript|ndjson|n-triples|n-quads|sql|yaml)"
    r"|.*\+(?:json|xml|yaml)"
)
LOGIN = re.compile(
    r"\b(?:log-?in|log-?on|sign-?in|sso|saml2?|shibboleth|oauth2?|oidc|cas|auth)\b", re.IGNORECASE
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

    def __init__(self, web: Web, disk: Disk, keep_part: KeepPart, progress: Progress) -> None:
        self._web = web
        self._disk = disk
        self._keep_part = keep_part
        self._progress = progress
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)

    async def fetch(self, row: Row) -> Fetched:
        """From the best address that has it; what the last one said is raised if none has."""
        problem: Exception = Refused(f"{row.loc} has no address")
        for number, url in enumerate(addresses(row.wanted)):
            try:
                return await self._from(url, row, is_own=url == row.loc)
            except (TryAgain, Refused, Missing) as error:
                if number == 0 or url == row.loc:
                    problem = error
        raise problem

    async def _from(self, url: str, row: Row, *, is_own: bool) -> Fetched:
        headers = self._conditions(row) if is_own else {}
        try:
            begun = await self._web.threads.run(self._begin, url, headers, row.wanted)
        except Mismatch:
            if "Range" in headers:
                self._drop_part(row.loc)
            raise
        if isinstance(begun, Fetched):
            self._progress(begun.length)
            return begun
        try:
            async with self._large:
                return await self._into_part(url, row, begun)
        finally:
            begun.close()

    def _begin(
        self, url: str, headers: Mapping[str, str], wanted: SourceResource
    ) -> Fetched | Answer:
        if "Range" not in headers and may_be_compressed(url, wanted):
            answer = self._web.answer(url, {**headers, **ASKS_FOR_GZIP})
            begun = _begin(url, wanted, answer, may_be_packed=True)
            if begun is not None:
                return begun
        begun = _begin(url, wanted, self._web.answer(url, headers))
        assert begun is not None  # noqa: S101 - nothing is unpacked
        return begun

    def _conditions(self, row: Row) -> dict[str, str]:
        """Go on with a part; or ask with a condition, where the Source gives nothing to compare."""
        length = self._disk.part_length(row.loc) if row.part else 0
        if row.part is not None and length:
            validator = row.part.etag or row.part.modified or ""
            return {"Range": f"bytes={length}-", "If-Range": validator}
        if row.have is None or row.path is None or digests(row.wanted.hash):
            return {}
        if self._disk.status(row.path) is None:
            return {}
        return Tag(row.have.etag, row.have.modified).condition

    async def _into_part(self, url: str, row: Row, answer: Answer) -> Fetched:
        checking = checker(row.wanted.hash)
        with self._disk.open_part(row.loc, keep=answer.status == 206) as part:
            if answer.status == 200 and (known := _resumable(answer)) is not None:
                self._keep_part(row.loc, known)
            receive = (_receive, answer, part, checking and checking[1], self._progress_in_thread())
            length = await self._web.threads.run(*receive, abort=answer.abort)
        try:
            _verify(url, row.wanted, length, checking)
        except Mismatch:
            self._drop_part(row.loc)
            raise
        return Fetched(_have(row.wanted, length, answer), None, length)

    def _drop_part(self, loc: str) -> None:
        """What is there does not lead to the resource: the next try begins from nothing."""
        self._disk.drop_part(loc)
        self._keep_part(loc, None)

    def _progress_in_thread(self) -> Progress:
        """`_progress`, for another thread to call."""
        loop = asyncio.get_running_loop()

        def progress(count: int) -> None:
            loop.call_soon_threadsafe(self._progress, count)

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
        if may_be_packed and _encoding(answer) in GZIP:
            return _unpacked(url, wanted, answer)
        _check_encoding(url, wanted, answer)
        is_small = answer.length is not None and answer.length <= SMALL_BYTES
        is_open = answer.status == 206 or not is_small
        return answer if is_open else _small(url, wanted, read(answer, answer.length or 0), answer)
    finally:
        if not is_open:
            answer.close()


def may_be_compressed(url: str, wanted: SourceResource) -> bool:
    """Whether gzip is asked for: small texts, and what may be one."""
    if wanted.length is not None and wanted.length > SMALL_BYTES:
        return False
    path = url.partition("#")[0].partition("?")[0]
    return _is_text(media_type(wanted.type) or _guessed(path.rpartition("/")[2]))


def _is_text(kind: str) -> bool:
    return kind in UNTYPED or TEXT.fullmatch(kind) is not None


def _guessed(name: str) -> str:
    """By the end of a name; packed files have a type that says so.

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
    """What is encoded though nobody asked for it is stored as it is, if that can be verified.

    Without a length or a digest only a file can that is packed by its name or type.
    """
    encoding = _encoding(answer)
    if encoding in ("", "identity"):
        return
    if answer.status == 206:
        raise Mismatch(f"{url} goes on in {encoding}, which was not asked for")
    if wanted.length is None and not digests(wanted.hash) and may_be_compressed(url, wanted):
        raise Mismatch(f"{url} is sent in {encoding}, which was not asked for")


def _unpacked(url: str, wanted: SourceResource, answer: Answer) -> Fetched | None:
    """What is in an answer in gzip; or the gzip itself, if that is what the Source means."""
    if (answer.length or 0) > SMALL_BYTES:
        return None
    packed = read(answer, SMALL_BYTES + 1)
    if len(packed) > SMALL_BYTES:
        return None
    if (wanted.length is not None or digests(wanted.hash)) and _fits(wanted, packed):
        return _small(url, wanted, packed, answer)
    if not packed:
        return _small(url, wanted, packed, answer)
    try:
        content = inflated(packed, SMALL_BYTES if wanted.length is None else wanted.length)
    except zlib.error as error:
        raise Mismatch(f"{url} is no whole gzip: {error}") from None
    if content is not None:
        return _small(url, wanted, content, answer)
    if wanted.length is None:
        return None
    raise Mismatch(f"{url} has more than {wanted.length} bytes, which the Source says")


def inflated(packed: bytes, cap: int) -> bytes | None:
    """What is in gzip, of one member or several; None if it is more than `cap` bytes.

    Raises `zlib.error` for what is damaged, or has no end.
    """
    pieces = []
    while True:
        member = zlib.decompressobj(31)
        piece = member.decompress(packed, cap + 1)
        cap -= len(piece)
        if cap < 0:
            return None
        pieces.append(piece)
        if not member.eof:
            raise zlib.error("it has no end")
        if not (packed := member.unused_data):
            return b"".join(pieces)


def _fits(wanted: SourceResource, content: bytes) -> bool:
    if wanted.length not in (None, len(content)):
        return False
    checking = checker(wanted.hash)
    if checking is None:
        return True
    checking[1].update(content)
    return bool(checking[1].hexdigest() == checking[2])


def ends_elsewhere(url: str, wanted: SourceResource, answer: Answer) -> str | None:
    """Why what a redirect led to is not the resource, where no digest can say it."""
    if digests(wanted.hash) or answer.url == without_login(url):
        return None
    to, came = f"is redirected to {answer.url}", media_type(answer.headers.get("content-type"))
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


def media_type(text: str | None) -> str:
    """Without its parameters.

    >>> media_type("Text/HTML; charset=utf-8")
    'text/html'
    """
    return (text or "").partition(";")[0].strip().lower()


def _check(url: str, wanted: SourceResource, answer: Answer) -> None:
    if answer.status == 304:
        raise NotModified(_date(answer.headers.get("date")))
    if answer.status in GONE:
        raise Missing(url, answer.status)
    if answer.status in AGAIN:
        raise again(url, answer)
    if answer.status == 416:
        raise Mismatch(f"{url} is shorter than what was there of it")
    if answer.status in (200, 206) and (why := ends_elsewhere(url, wanted, answer)) is not None:
        raise Mismatch(f"{url} {why}")
    if answer.status not in (200, 206):
        raise refused(url, answer.status, challenge=answer.headers.get("www-authenticate"))


def _small(url: str, wanted: SourceResource, content: bytes, answer: Answer) -> Fetched:
    checking = checker(wanted.hash)
    if checking is not None:
        checking[1].update(content)
    _verify(url, wanted, len(content), checking)
    return Fetched(_have(wanted, len(content), answer), content, len(content))


def _verify(
    url: str, wanted: SourceResource, length: int, checking: tuple[str, Any, str] | None
) -> None:
    if wanted.length is not None and wanted.length != length:
        raise Mismatch(f"{url} has {length} bytes, but the Source says {wanted.length}")
    if checking is not None and checking[1].hexdigest() != checking[2]:
        raise Mismatch(f"{url} does not have the {checking[0]} digest that the Source says")


def _have(wanted: SourceResource, length: int, answer: Answer) -> Have:
    headers = answer.headers
    modified = headers.get("last-modified")
    asked = _date(headers.get("date"))
    return Have(wanted.lastmod, length, wanted.hash, headers.get("etag"), modified, asked)


@lru_cache(maxsize=100)
def _date(text: str | None) -> int | None:
    """Seconds since 1970; many answers come in one second."""
    try:
        return None if text is None else int(parsedate_to_datetime(text).timestamp())
    except (TypeError, ValueError, OverflowError):
        return None


def _resumable(answer: Answer) -> Have | None:
    """By what a part is known to belong to the same file; a weak tag does not do."""
    if _encoding(answer) not in ("", "identity"):
        return None
    tag = Tag.of(answer.headers)
    if tag.etag and not tag.etag.startswith("W/"):
        return Have(etag=tag.etag)
    return Have(modified=tag.modified) if tag.modified else None


def _receive(answer: Answer, part: BinaryIO, digest: Any | None, progress: Progress) -> int:
    """In a thread: the body goes into the part and its digest; the part's length."""
    if answer.status == 206:
        _reread(part, digest)
    unreported, room = 0, memoryview(bytearray(READ_BYTES))
    while count := _read_into(room, answer):
        left = piece = room[:count]
        while left:
            left = left[part.write(left) :]
        if digest is not None:
            digest.update(piece)
        unreported += count
        if unreported >= REPORTED_BYTES:
            progress(unreported)
            unreported = 0
    progress(unreported)
    return part.tell()


def _read_into(room: memoryview, answer: Answer) -> int:
    try:
        return answer.read_into(room)
    except OSError as error:
        raise Unreachable(answer.url, cause_of(error)) from None


def _reread(part: BinaryIO, digest: Any | None) -> None:
    """The digest of what is there already."""
    if digest is None:
        part.seek(0, os.SEEK_END)
        return
    while piece := part.read(SMALL_BYTES):
        digest.update(piece)
