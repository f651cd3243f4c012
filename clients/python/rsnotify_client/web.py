"""HTTP as a Destination speaks it: documents with caps, conditions and clear words for what failed.

Rules that hold here: the token is shown to the origin that it is for, and to no other; what a peer
may send is bounded; certificates are verified.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from time import time
from typing import NamedTuple, Self
from urllib.parse import SplitResult, urlsplit

import aiohttp
import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.cause import cause_of, untrusted

CONNECT_SECONDS = 15
SILENCE_SECONDS = 60
READ_BYTES = 1024 * 1024
PAGE_BYTES = 2 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
REDIRECTS = 5
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
RETRY_AFTER_SECONDS = 3_600
XML_FIRST = "application/xml, text/xml;q=0.9, text/html;q=0.5, */*;q=0.1"
SCHEMES = ("http", "https")


class Tag(msgspec.Struct, frozen=True):
    """What a document was known by when it was read last."""

    etag: str | None = None
    modified: str | None = None

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Self:
        return cls(headers.get("ETag"), headers.get("Last-Modified"))

    @property
    def condition(self) -> dict[str, str]:
        """The headers by which a server says that nothing has changed."""
        if self.etag:
            return {"If-None-Match": self.etag}
        return {"If-Modified-Since": self.modified} if self.modified else {}


class Page(NamedTuple):
    """Something that was fetched whole."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes


class Unchanged(Exception):
    """The document is the one that was read before."""


class Unreachable(TryAgain):
    """No answer came, or it broke off."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"{url} cannot be reached: {cause}", retry_after_seconds=0)
        self.cause = cause


class Refused(Rejected):
    """An answer that another try would not change."""


class Web:
    """One session: connections are kept and shared by all who ask."""

    def __init__(
        self, token: str | None = None, origin: str | None = None, *, connections: int = 32
    ) -> None:
        self._token = token
        self._origin = origin and origin_of(origin)
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, limit_per_host=0),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
                ),
                read_bufsize=READ_BYTES,
                auto_decompress=False,  # it would inflate a bomb before anyone can count
                headers={"User-Agent": "rsnotify", "Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def headers(self, url: str) -> dict[str, str]:
        """The token, for its own origin only; without a named origin, for every address."""
        if self._token is None or (self._origin and origin_of(url) != self._origin):
            return {}
        return {"Authorization": f"Bearer {self._token}"}

    @asynccontextmanager
    async def ask(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One answer of any status, with its body still to come."""
        if _split(url).scheme not in SCHEMES:
            raise Refused(f"{url} is no address that can be fetched: http and https can")
        try:
            async with self.session.request(
                method,
                url,
                headers=self.headers(url) | dict(headers or {}),
                max_redirects=REDIRECTS,
            ) as answer:
                yield answer
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, aiohttp.TooManyRedirects):
            raise Refused(f"{url} leads to no address that can be fetched") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if (why := untrusted(error)) is not None:
                raise Refused(f"{urlsplit(url).netloc} is not spoken to: {why}") from None
            raise Unreachable(url, cause_of(error)) from None

    async def page(
        self, url: str, *, accept: str = XML_FIRST, method: str = "GET", cap: int = PAGE_BYTES
    ) -> Page:
        """The answer of any status, its body up to `cap` bytes."""
        async with self.ask(url, method=method, headers={"Accept": accept}) as answer:
            if answer.status in AGAIN:
                raise again(url, answer)
            body = bytearray()
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                body += chunk
                if len(body) >= cap:
                    break
            return Page(str(answer.url), answer.status, answer.headers, bytes(body[:cap]))


def check_status(url: str, answer: aiohttp.ClientResponse) -> None:
    """Whether there is something to read."""
    if answer.status == 304:
        raise Unchanged
    if answer.status in AGAIN:
        raise again(url, answer)
    if answer.status != 200:
        raise refused(url, answer.status)


def again(url: str, answer: aiohttp.ClientResponse) -> TryAgain:
    return TryAgain(
        f"{url} cannot be served now ({answer.status})",
        retry_after_seconds=retry_after(answer.headers.get("Retry-After")),
    )


def refused(url: str, status: int, detail: str | None = None) -> Refused:
    """What an answer means, and how to mend it."""
    mends = {
        401: "a token is needed: set RSNOTIFY_TOKEN to one that may read it",
        403: "the token may not read it: set RSNOTIFY_TOKEN to one that may",
        404: "there is nothing at this address: look whether it is right",
        410: "it is there no longer",
    }
    words = detail or mends.get(status, f"the answer was {status}")
    return Refused(f"{url}: {words}", status=status)


def retry_after(text: str | None, now: float | None = None) -> int:
    """Seconds, whether a number or a date was sent; an hour at most."""
    if not text:
        return 0
    if text.strip().isdecimal():
        return min(int(text), RETRY_AFTER_SECONDS)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - (time() if now is None else now)
    except (TypeError, ValueError, OverflowError):
        return 0
    return min(max(0, int(seconds)), RETRY_AFTER_SECONDS)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # it is only read, and refused, when it is asked for
    except ValueError as error:
        raise Refused(f"{url} is no address that can be fetched: {error}") from None
    return parts


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port; a channel's ws address has the origin of its http twin."""
    parts = _split(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    port = parts.port or {"http": 80, "https": 443}.get(scheme)
    return scheme, (parts.hostname or "").lower(), port
