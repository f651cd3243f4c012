"""Requests over kept connections of urllib3, whose errors become an `OSError`.

Rules that hold here: one answer for one request, no redirect followed, no header sent that was not
handed over; a request is repeated only if the kept connection turns out to be closed. If there is a
limit for each server, no more of its answers are open at any moment. Any thread may use this.
"""

import io
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from http.client import BadStatusLine, HTTPException, IncompleteRead, LineTooLong, UnknownProtocol
from queue import SimpleQueue
from threading import Lock
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote, urljoin, urlsplit
from weakref import WeakSet, WeakValueDictionary

from urllib3 import HTTPResponse, PoolManager, ProxyManager, Timeout
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, LocationParseError, ProxyError
from urllib3.exceptions import TimeoutError as OutOfTime

from rsnotify_client.address import without_tokens
from rsnotify_client.answer import cause_of
from rsnotify_client.bounded import (
    SILENCE_SECONDS,
    BadAnswer,
    BoundedConnection,
    BoundedResponse,
    BoundedTlsConnection,
    StaleConnection,
    abort,
)
from rsnotify_client.network import EXAMPLE, Network, Proxy, Reach

log = logging.getLogger(__name__)

CONNECT_SECONDS = 15.0
IDLE_PER_ORIGIN = 64
ORIGINS = 64
READ_BYTES = 128 * 1024

CLOSED = "the connection was closed before the end of the answer"
REFUSED_BY_PROXY = "Tunnel connection failed: 407"
WANTS_PASSWORD = f"it wants a user and a password: give them in its address, as {EXAMPLE}"
NETWORK = Network()

Received = TypeVar("Received")

Origin = tuple[str, str, int]
"""Scheme, host and port."""

_SAFE = "!$%&'()*+,-./:;=?@_~"


class Target(NamedTuple):
    """The parts of an address."""

    scheme: str
    host: str
    port: int
    path: str  # with the query

    @property
    def origin(self) -> Origin:
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


@lru_cache(maxsize=16)
def target_of(url: str) -> Target:
    """The parts of an address; `ValueError` if it is none.

    >>> target_of("http://a.example/x y/../z?q=é").path
    '/z?q=%C3%A9'
    """
    parts = urlsplit(url)
    name = parts.hostname or ""
    host = name if ":" in name else name.encode("idna").decode()
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("http and https addresses can be fetched")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = parts.path if "/." not in parts.path else urlsplit(urljoin("http://x/", parts.path)).path
    asked = quote((path or "/") + (f"?{parts.query}" if parts.query else ""), _SAFE)
    return Target(parts.scheme, host, port, asked)


class Answer(io.RawIOBase):
    """The head of an answer; its body is read piece by piece, or as a file; then close it."""

    def __init__(self, url: str, response: HTTPResponse) -> None:
        self.url = url
        self.places: list[SimpleQueue[None]] = []
        """The one that it holds of those that its server has; it is given back once."""
        self.status = response.status
        self.leads_to: str | None = None
        """Of one that was closed: where its redirect leads."""
        self.shown: Mapping[str, str] = {}
        """The credentials with which it was asked for."""
        self.headers = {name.lower(): value for name, value in response.headers.itermerged()}
        """By lower-case name; one that came several times is joined by commas."""
        self._response = response
        self.http = cast("BoundedResponse", response._original_response)
        self.length = self.http.length
        """The length of the body, if it was announced."""
        if self.length == 0:
            self.piece(0)  # so that the connection serves again

    @property
    def is_read(self) -> bool:
        return self.http.isclosed()

    def limit(
        self,
        until: float | None = None,
        *,
        waiting: float | None = None,
        is_endless: bool = False,
    ) -> None:
        """Set when the whole body has to be there, or how long it may have itself waited for; an
        endless one may come as slowly as it likes.

        It does not count as one of the answers of its server: the next would never get its place.
        """
        self.http.reader.socket.until = until
        self.http.reader.socket.patience = waiting
        if is_endless:
            self.http.reader.socket.never_ends()
            self._make_room()

    def piece(self, size: int = READ_BYTES) -> bytes:
        """The next piece of the body, of this size at most; empty at the end."""
        return self._received(self.http.read1, size)

    def readable(self) -> bool:
        return True

    def readinto(self, view: Any) -> int:
        """What comes next of a long body, as much as there is room for; 0 at its end.

        One piece of memory serves for all of it, and what TLS hands over piecemeal fills it.
        """
        if self.length is not None:
            return self._received(self.http.readinto, view)
        piece = self.piece(len(view))
        view[: len(piece)] = piece
        return len(piece)

    def read(self, size: int = READ_BYTES) -> bytes:
        """This many bytes, fewer only at the end."""
        data = self._received(self.http.read, size)
        if len(data) < size and not self.is_read:
            self.piece(1)  # there is none: was it cut short?
        return data

    def _received(self, read: Callable[[Any], Received], room: Any) -> Received:
        try:
            received = read(room)
            if self.http.length == 0:
                self.http.close()
        except BaseException as error:
            self._response.close()
            if isinstance(error, HTTPException | ValueError):
                raise _as_os_error(error) from None
            raise
        if self.is_read:
            if self.http.length:
                self._response.close()
                raise BadAnswer(CLOSED)
            self._response.release_conn()
        return received

    def abort(self) -> None:
        """Wake the thread that waits for this answer."""
        self.http.abort()

    def close(self) -> None:
        """Close; the connection is kept only if its answer was read to the end."""
        try:
            if not self.is_read:
                self._response.close()
        finally:
            self._make_room()
            super().close()

    def _make_room(self) -> None:
        with suppress(IndexError):  # whichever thread comes first
            self.places.pop().put(None)


class Pace:
    """Limits how many requests start in a second, however many threads ask."""

    def __init__(self, rate: float, clock: Callable[[], float] = monotonic) -> None:
        self._interval = 1 / rate
        self._clock = clock
        self._next = 0.0
        self._lock = Lock()

    def turn(self) -> float:
        """How long the next request has to wait."""
        with self._lock:
            now = self._clock()
            self._next = max(self._next, now)
            wait, self._next = self._next - now, self._next + self._interval
            return wait

    def wait(self) -> None:
        sleep(self.turn())


class Transport:
    """Connections to all origins; idle ones are used again."""

    def __init__(
        self,
        network: Network = NETWORK,
        *,
        reach: Reach | None = None,
        connect_seconds: float = CONNECT_SECONDS,
        read_seconds: float = SILENCE_SECONDS,
        per_server: int | None = None,
    ) -> None:
        self._network = network
        self._reach = reach
        self._timeout = Timeout(
            connect=network.timeout_seconds or connect_seconds,
            read=network.timeout_seconds or read_seconds,
        )
        self._certificates: ssl.SSLContext | None = None
        self._pace = None if network.rate is None else Pace(network.rate)
        self._managers: dict[tuple[Proxy | None, str], PoolManager] = {}
        self._pools: dict[Origin, HTTPConnectionPool] = {}
        self._open: WeakSet[BoundedResponse] = WeakSet()
        self._asking: set[Any] = set()  # sockets of which an answer is waited for
        self._lock = Lock()
        self._per_server = per_server
        self._places: WeakValueDictionary[Origin, SimpleQueue[None]] = WeakValueDictionary()
        self._is_closed = False

    @property
    def tls(self) -> ssl.SSLContext:
        """Made once, without a lock that a fork could leave locked: two threads may make two."""
        if self._certificates is None:
            self._certificates = self._network.tls()
        return self._certificates

    def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Iterator[bytes] | None = None,
        seconds: float | None = None,
        patience: float | None = None,
    ) -> Answer:
        """Ask for one answer, which must be closed. A body that is an iterator is not sent again.

        It has so many seconds until its answer begins, if they are fewer than those of all. One
        that its server holds back on purpose is waited for with `patience`, which goes before what
        is set for all; it takes no place from others.

        Raises `ValueError` for what cannot be sent: no other server or time would change it.
        """
        target = target_of(url)
        sent = {name: _as_sent(value) for name, value in headers.items()}
        timeout = self._timeout_of(seconds, patience)
        if self._per_server is None or patience is not None:
            return self._asked(target, method, url, sent, body, timeout)
        with self._lock:
            places = self._places.setdefault(target.origin, _places(self._per_server))
        places.get()
        try:
            answer = self._asked(target, method, url, sent, body, timeout)
        except BaseException:
            places.put(None)
            raise
        answer.places.append(places)
        return answer

    def _asked(
        self,
        target: Target,
        method: str,
        url: str,
        headers: Mapping[str, str | bytes],
        body: bytes | Iterator[bytes] | None,
        timeout: Timeout,
    ) -> Answer:
        while True:
            if self._is_closed:
                raise BadAnswer("the client was closed")
            pool = self._pool(target)
            is_forwarded = pool.proxy is not None and target.scheme == "http"
            if self._pace is not None:
                self._pace.wait()
            try:
                response = pool.urlopen(
                    method,
                    target.url if is_forwarded else target.path,
                    body,
                    cast("Mapping[str, str]", headers),
                    retries=False,
                    redirect=False,
                    assert_same_host=False,
                    timeout=timeout,
                    preload_content=False,
                    decode_content=False,
                )
            except StaleConnection as error:
                if isinstance(body, Iterator):
                    raise BadAnswer(CLOSED) from error
                continue
            except (HTTPError, HTTPException) as error:
                raise _as_os_error(error, pool.proxy) from None
            log.debug("%s %s answered %s", method, without_tokens(url), response.status)
            return self._opened(Answer(url, cast("HTTPResponse", response)))

    def _timeout_of(self, seconds: float | None, patience: float | None) -> Timeout:
        known = self._timeout
        if patience is not None:
            return Timeout(connect=known.connect_timeout, read=patience)
        if seconds is None:
            return known
        return Timeout(total=seconds, connect=known.connect_timeout, read=known.read_timeout)

    def _pool(self, target: Target) -> HTTPConnectionPool:
        """The pool of an origin, kept here because urllib3 takes long to find it."""
        origin = target.origin
        if (pool := self._pools.get(origin)) is not None:
            return pool
        proxy = self._network.proxies.lead_to(*origin)
        if (manager := self._managers.get((proxy, target.scheme))) is None:
            made = self._manager(proxy, target.scheme)
            manager = self._managers.setdefault((proxy, target.scheme), made)
        try:
            found = manager.connection_from_host(target.host, target.port, target.scheme)
        except HTTPError as error:
            raise _as_os_error(error) from None
        if len(self._pools) >= ORIGINS:
            self._pools.clear()
        return self._pools.setdefault(origin, found)

    def _manager(self, proxy: Proxy | None, scheme: str) -> PoolManager:
        options: dict[str, Any] = {"maxsize": IDLE_PER_ORIGIN}
        if "https" in (scheme, proxy and proxy.scheme):
            options["ssl_context"] = self.tls
        if proxy is None or proxy.is_socks:
            manager = PoolManager(ORIGINS, **options)
        else:
            shown = {"Proxy-Authorization": proxy.login} if proxy.login else {}
            over_tls = {"proxy_ssl_context": self.tls} if proxy.scheme == "https" else {}
            options |= over_tls | {"proxy_headers": shown}
            manager = ProxyManager(proxy.name, ORIGINS, **options)
        by: dict[str, object] = {"asking": self._asking}
        if proxy is None:
            by["reach"] = self._reach
        elif proxy.is_socks:
            by["socks"] = proxy
        plain, tls = _pools(**by)
        manager.pool_classes_by_scheme = {"http": plain, "https": tls}
        return manager

    def release(self) -> None:
        """Keep none of these connections, nor one that is being used now; later ones are kept."""
        with self._lock:
            pools, self._pools, self._managers = list(self._pools.values()), {}, {}
        for pool in pools:
            pool.close()

    def abandon(self) -> None:
        """In a forked process: close what the parent kept. Its locks may stay locked."""
        for pool in self._pools.values():
            for connection in pool.pool.queue if pool.pool else ():
                if connection is not None:
                    connection.close()
        _ABANDONED.append(self._managers)  # what ends a pool would take its lock

    def _opened(self, answer: Answer) -> Answer:
        with self._lock:
            self._open.add(answer.http)
            if not self._is_closed:
                return answer
        answer.close()
        raise BadAnswer("the client was closed")

    def close(self) -> None:
        """Close all; a thread that waits for an answer, or reads one, gets an error at once."""
        with self._lock:
            self._is_closed = True
            busy, places = list(self._open), list(self._places.values())
        for each in places:
            each.put(None)  # whoever waits is refused, and lets the next one in
        for http in busy:
            http.abort()
        for each in [*self._asking]:
            abort(each)
        self.release()


_ABANDONED: list[object] = []


def _places(count: int) -> SimpleQueue[None]:
    """No semaphore: the garbage collector may close an answer, and so give a place back, while this
    thread takes or gives back another one."""
    places = SimpleQueue[None]()
    for _ in range(count):
        places.put(None)
    return places


def _as_sent(value: str) -> str | bytes:
    """What a server sent goes back as it came; other characters are sent as UTF-8.

    >>> _as_sent("a"), _as_sent("€")
    ('a', b'\\xe2\\x82\\xac')
    """
    if not value.isprintable() and any(each in value for each in "\r\n\0"):
        raise ValueError("a header has a line break or a NUL")
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode()
    return value


def _pools(**by: object) -> tuple[type[HTTPConnectionPool], type[HTTPConnectionPool]]:
    """Pools whose connections are made by this proxy, or within this reach."""
    plain = type("OurConnection", (BoundedConnection,), by)
    tls = type("OurTlsConnection", (BoundedTlsConnection,), by)
    return (
        type("OurPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        type("OurTlsPool", (HTTPSConnectionPool,), {"ConnectionCls": tls}),
    )


def _as_os_error(error: Exception, proxy: Any = None) -> Exception:
    """One error for what urllib3 and http.client raise in many ways; without an address."""
    if isinstance(error, ProxyError) and proxy is not None:
        cause = _as_os_error(error.original_error)
        if REFUSED_BY_PROXY in str(cause):
            cause = OSError(WANTS_PASSWORD)
        return BadAnswer(f"the proxy {proxy.host}:{proxy.port}: {cause_of(cause)}")
    for each in _chain(error):
        if isinstance(each, LocationParseError):
            return ValueError("it is no address")
        if isinstance(each, IncompleteRead):
            return BadAnswer(CLOSED)
        if isinstance(each, OSError) and not isinstance(each, HTTPError):
            return each
        if isinstance(each, LineTooLong | BadStatusLine | UnknownProtocol | ValueError):
            return BadAnswer("what answered does not speak HTTP")
    is_over = isinstance(error, OutOfTime)  # its time was, before anything was waited for
    return TimeoutError() if is_over else BadAnswer(str(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it wraps."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        wrapped = [each for each in seen.args if isinstance(each, BaseException)]
        seen = wrapped[0] if wrapped else seen.__cause__
