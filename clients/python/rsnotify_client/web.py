"""HTTP as a Destination speaks it: documents with caps, conditions and clear words for what failed.

Rules that hold here: the token is shown to the origin that it is for, and to no other; what a peer
may send is bounded; certificates are verified; no error says a token that stands in an address.

What is compressed with gzip is inflated piece by piece, and no more at once than a piece.
"""

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from time import time
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.gunzip import MAGIC, Gunzip
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.retry import retry_after_seconds
from rsnotify_client.address import joined, origin, without_tokens
from rsnotify_client.answer import AGAIN, cause_of, problem_in, untrusted
from rsnotify_client.blocking_threads import BlockingThreads
from rsnotify_client.bounded import SILENCE_SECONDS
from rsnotify_client.network import Credentials, Network, OutOfReach, Reach, without_login
from rsnotify_client.token import HeldToken, Token
from rsnotify_client.transport import WANTS_PASSWORD, Answer, Transport

# --- what is compressed --------------------------------------------------------------------------

LAYERS = 2  # a .gz file that is sent with Content-Encoding: gzip
PAGE_BYTES = 2 * 1024 * 1024  # of a page or a document that is read whole
CHUNK_BYTES = 64 * 1024  # of what is read piece by piece
SMALL_BYTES = 1024 * 1024
REDIRECTS = 5
RETRY_AFTER_SECONDS = 3_600  # that a server may ask for, at most


class Unpacker:
    """Inflates what begins as gzip does, piece by piece; leaves the rest as it is."""

    def __init__(self, layers: int = LAYERS) -> None:
        self._layers = layers  # at most; none of what is plain
        self._begun = b""
        self._gunzip: Gunzip | None = None
        self._inner: Unpacker

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._layers == 0:
            yield data
            return
        if self._gunzip is None:
            data = self._begun = self._begun + data
            if len(data) < len(MAGIC):
                return
            if not data.startswith(MAGIC):
                self._layers = 0
                yield data
                return
            self._gunzip, self._inner = Gunzip(), Unpacker(self._layers - 1)
        for piece in self._gunzip.feed(data):
            yield from self._inner.feed(piece)

    def close(self) -> Iterator[bytes]:
        """All has come: the rest, which was too short to say whether it is gzip."""
        if self._gunzip is not None:
            self._gunzip.close()
            yield from self._inner.close()
        elif self._layers:
            yield self._begun


# --- requests ------------------------------------------------------------------------------------

if TYPE_CHECKING:
    import ssl

XML_FIRST = "application/xml, text/xml;q=0.9, text/html;q=0.5, */*;q=0.1"
SCHEMES = ("http", "https")
THAT_MAY_READ = (
    "that may read it (to a command, in RSNOTIFY_SOURCE_TOKEN for a Source, or in RSNOTIFY_TOKEN "
    "for a hub)"
)
_SCHEME = re.compile(r"(?:^|,)\s*([A-Za-z][\w-]*)(?=\s*(?:,|$)|\s+[^=\s])")
MOVED = frozenset({301, 302, 303, 307, 308})
HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity"}


class Tag(msgspec.Struct, frozen=True):
    """The ETag and date that a document had when it was read last."""

    etag: str | None = None
    modified: str | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self:
        """As they are said."""
        return cls(headers.get("etag"), headers.get("last-modified"))

    @classmethod
    def of_document(cls, headers: Mapping[str, str]) -> Self:
        """A date that was not over when it was sent may be that of something else, too: it is of no
        use (RFC 9110, 8.8.2.2)."""
        tag = cls.of(headers)
        written, sent = date_seconds(tag.modified), date_seconds(headers.get("date"))
        is_over = written is None or sent is None or sent > written
        return tag if is_over else cls(tag.etag)

    @property
    def condition(self) -> dict[str, str]:
        """The headers that ask whether anything has changed."""
        if self.etag:
            return {"If-None-Match": self.etag}
        return {"If-Modified-Since": self.modified} if self.modified else {}


class FetchedPage(NamedTuple):
    """Something that was fetched whole."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def challenge(self) -> str | None:
        """The authentication that the server asks for."""
        return self.headers.get("www-authenticate")


class Unchanged(Exception):
    """The document is the one that was read before."""


class Unreachable(TryAgain):
    """No answer came, or it broke off."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"{without_tokens(url)} cannot be reached: {cause}", retry_after_seconds=0)
        self.url = url
        self.cause = cause


class Refused(Rejected):
    """An answer that another try would not change."""

    def __init__(self, detail: str, *, status: int = 400) -> None:
        super().__init__(without_tokens(detail), status=status)


class Reply:
    """One answer, for an event loop."""

    def __init__(self, answer: Answer, threads: BlockingThreads) -> None:
        self.url = answer.url
        self.status = answer.status
        self.headers = answer.headers
        self.shown = answer.shown
        self._answer = answer
        self._threads = threads

    def close(self) -> None:
        self._answer.close()

    async def abort(self) -> None:
        """Whoever reads it gets an error at once."""
        self._answer.abort()

    async def read(self, size: int) -> bytes:
        """So many bytes of the body, fewer only at its end."""
        return await self._threads.run(read, self._answer, size, abort=self._answer.abort)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, in pieces large enough to be worth a call."""
        while piece := await self.read(CHUNK_BYTES):
            yield piece

    def never_ends(self) -> None:
        """From now on the body may come as slowly as it likes, and takes no place of others."""
        self._answer.limit(is_endless=True)

    def ends_in(self, seconds: float) -> None:
        """How long the body may keep its reader waiting, altogether."""
        self._answer.limit(waiting=seconds)

    async def next_piece(self) -> bytes:
        """What is sent next of a body that may have no end, however slowly it comes."""
        piece = partial(read, self._answer, CHUNK_BYTES, is_piece=True)
        return await self._threads.run(piece, abort=self._answer.abort)


async def unpacked(answer: Reply) -> AsyncGenerator[bytes, None]:
    """The body to its end, inflated if it is gzip; `BrokenGzip` if that is not whole."""
    unpacker = Unpacker()
    async for chunk in answer.pieces():
        for piece in unpacker.feed(chunk):
            yield piece
    for piece in unpacker.close():
        yield piece


def read(answer: Answer, size: int, *, is_piece: bool = False) -> bytes:
    """So many bytes of the body, or a piece of it; what goes wrong is `Unreachable`."""
    try:
        return answer.piece(size) if is_piece else answer.read(size)
    except OSError as error:
        raise Unreachable(answer.url, cause_of(error)) from None


class Web:
    """One client: connections are kept and shared by all who ask."""

    def __init__(
        self,
        token: Token | HeldToken | None = None,
        url: str | None = None,
        *,
        connections: int = 32,
        network: Network | None = None,
        same_site: bool = False,
        per_server: int | None = None,
    ) -> None:
        self.threads = BlockingThreads(connections)
        self.network = network or Network.of(os.environ)
        if url is not None:
            origin_of(url)
        self.credentials = Credentials(self.network, token, url)
        self.reach = None
        if url is not None:
            source, source_kinds = self.network.source or url, self.network.source_kinds
            self.reach = Reach(source, same_site=same_site, source_kinds=source_kinds)
        """What a Source may lead to, channels included; None if no Source is read."""
        self._transport = Transport(
            self.network, reach=self.reach, read_seconds=SILENCE_SECONDS, per_server=per_server
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._transport.close()
        self.threads.close()

    @property
    def tls(self) -> "ssl.SSLContext":
        """The client for channels, which stay open."""
        return self._transport.tls

    def headers(self, url: str, asked: str | None = None) -> dict[str, str]:
        """The headers for this address; the token, for example, goes to its own origin only.

        `asked` is the address that was redirected to this one.
        """
        is_same = asked is None or asked is url or origin_of(asked) == origin_of(url)
        return self.credentials.headers(url, is_asked_for=is_same)

    async def has_others(self, shown: Mapping[str, str]) -> bool:
        """Whether there is another token than that of these headers, which were refused."""
        if not self.credentials.has_function:
            return False
        return await self.threads.run(self.credentials.has_others, shown)

    async def headers_in_a_loop(self, url: str, asked: str) -> dict[str, str]:
        """`headers`, where an event loop runs: a function is waited for in a thread."""
        if not self.credentials.has_function:
            return self.headers(url, asked)
        return await self.threads.run(self.headers, url, asked)

    @asynccontextmanager
    async def ask(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> AsyncIterator[Reply]:
        """One answer of any status, with its body still to come; `patience` is for one that its
        server holds back on purpose."""
        answer = await self.threads.run(self.answer, url, headers or {}, patience)
        try:
            yield Reply(answer, self.threads)
        finally:
            answer.close()

    def answer(self, url: str, headers: Mapping[str, str], patience: float | None = None) -> Answer:
        """The answer for a thread, which closes it; redirects are followed."""
        asked = url
        for _ in range(REDIRECTS + 1):
            answer = self.step(url, asked, headers, patience)
            if answer.leads_to is None:
                return answer
            asked = answer.leads_to
        raise too_often_redirected(url)

    def step(
        self, url: str, asked: str, headers: Mapping[str, str], patience: float | None = None
    ) -> Answer:
        """One answer on the way from `url`. A redirect is closed, and `leads_to` says where to."""
        try:
            common = HEADERS | {"User-Agent": self.network.agent}
            answer = self._asked(url, asked, common | dict(headers), patience)
        except OutOfReach as error:
            raise Refused(f"{url}: {error}") from None
        except OSError as error:  # first: a certificate's error is a ValueError, too
            if (why := untrusted(error)) is not None:
                raise Refused(f"{urlsplit(url).netloc} is not spoken to: {why}") from None
            raise Unreachable(url, cause_of(error)) from None
        except (ValueError, RecursionError):
            raise Refused(f"{url} leads to no address that can be fetched") from None
        to = answer.headers.get("location")
        if answer.status in MOVED and to is not None:
            answer.close()
            answer.leads_to = joined(asked, to)
        return answer

    def _asked(
        self, url: str, asked: str, headers: dict[str, str], patience: float | None
    ) -> Answer:
        if not _can_be_fetched(asked):
            raise Refused(f"{asked} is no address that can be fetched: http and https can")
        if self.reach is not None and (why := self.reach.why_not_asked(asked)) is not None:
            raise Refused(f"{asked}: {why}" if asked is url else f"{url}: {asked}: {why}")
        answer = self._shown(url, asked, headers, patience)
        if answer.status == 401 and self._has_others(answer):
            return self._shown(url, asked, headers, patience)
        return answer

    def _shown(
        self, url: str, asked: str, headers: dict[str, str], patience: float | None
    ) -> Answer:
        shown = self.headers(asked, url)
        sent = headers | shown
        answer = self._transport.ask("GET", without_login(asked), sent, patience=patience)
        answer.shown = shown
        return answer

    def _has_others(self, refused: Answer) -> bool:
        """Whether there is another token than the one that this answer refuses; else it is kept."""
        has_others = True
        try:
            has_others = self.credentials.has_others(refused.shown)
        finally:
            if has_others:
                refused.close()
        return has_others

    async def page(
        self, url: str, *, accept: str = XML_FIRST, cap: int = PAGE_BYTES
    ) -> FetchedPage:
        """The answer of any status, its body up to `cap` bytes."""
        async with self.ask(url, headers={"Accept": accept}) as answer:
            if answer.status in AGAIN:
                raise again(url, answer)
            body = bytearray()
            async for piece in answer.pieces():
                body += piece
                if len(body) >= cap:
                    break
            return FetchedPage(answer.url, answer.status, answer.headers, bytes(body[:cap]))


def too_often_redirected(url: str) -> Refused:
    return Refused(f"{url} is redirected more than {REDIRECTS} times")


def check_status(
    url: str, answer: Reply | Answer, condition: Mapping[str, str] | None = None
) -> None:
    """Raise unless there is something to read: `Unchanged` only if that was the condition."""
    if answer.status == 304 and condition:
        raise Unchanged
    if answer.status in AGAIN:
        raise again(url, answer)
    if answer.status != 200:
        raise refused(url, answer.status, challenge=answer.headers.get("www-authenticate"))


def again(url: str, answer: Reply | Answer) -> TryAgain:
    return TryAgain(
        f"{without_tokens(url)} cannot be served now ({answer.status})",
        retry_after_seconds=retry_after(answer.headers.get("retry-after")),
    )


def refused(
    url: str, status: int, detail: str | None = None, challenge: str | None = None
) -> Refused:
    """The error for an answer: what it means, and what to do."""
    advice = {
        304: "the answer was 304, unchanged, though nobody asked for that: look at its cache",
        401: _wanted(challenge),
        403: f"it may not be read: give a token {THAT_MAY_READ}",
        404: "there is nothing at this address: look whether it is right",
        407: f"the proxy refuses: {WANTS_PASSWORD}",
        410: "it is there no longer",
    }
    words = detail or advice.get(status, f"the answer was {status}")
    return Refused(f"{url}: {words}", status=status)


def _wanted(challenge: str | None) -> str:
    """What a server that answers 401 asks for (RFC 9110, 11.6.1).

    >>> _wanted('Negotiate, NTLM')
    'it asks for Negotiate or NTLM, which rsnotify does not speak: ask for another way in'
    """
    schemes = [each.lower() for each in _SCHEME.findall(challenge or "")]
    if not schemes or "bearer" in schemes:
        return f"a token is needed: give one {THAT_MAY_READ}"
    if "basic" in schemes:
        return (
            "a user and a password are needed: give them in the address, as in "
            "https://user:password@example.org/, or in ~/.netrc"
        )
    named = " or ".join(_SCHEME.findall(challenge or ""))
    return f"it asks for {named}, which rsnotify does not speak: ask for another way in"


def detail_of(body: bytes) -> str | None:
    """The detail of a refusal in a problem document (RFC 9457)."""
    problem = problem_in(body)
    return None if problem is None else problem.detail


def retry_after(text: str | None) -> int:
    """The seconds of a `Retry-After`; an hour at most, 0 if it says nothing."""
    return retry_after_seconds(text, time(), RETRY_AFTER_SECONDS) or 0


def _can_be_fetched(url: str) -> bool:
    try:
        return urlsplit(url).scheme in SCHEMES
    except ValueError:
        return False


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; a channel's ws address has the origin of its http twin."""
    try:
        return origin(url)
    except ValueError as error:
        raise Refused(f"{url} is no address that can be fetched: {error}") from None
