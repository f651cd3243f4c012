"""Calls addresses that strangers have named: the only place that connects to them.

Every address is checked when it is resolved and again when its socket is made, so the address that
was checked is the one that is called. Redirects are not followed. An answer may take ten seconds
and what `BoundedHandler` allows, and is never decompressed. Nothing here knows what is sent, or
what follows from an answer.
"""

import asyncio
import socket
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any, Self

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from rsnotify import __version__
from rsnotify.outbound.answer import CallAnswer
from rsnotify.outbound.bounded_answer import (
    ANSWER_BYTES,
    ANSWER_LINES,
    AnswerTooLong,
    BoundedConnector,
)
from rsnotify.resourcesync.addresses import literal_address, refusal

CALL_SECONDS = 10.0
BODY_BYTES = 16 * 1024  # of an answer whose body is read
KEEP_ALIVE_SECONDS = 15.0
REST_SECONDS = 0.5  # for a body that is not needed: the status has said all
RESOLVING = 64  # lookups at once: a name server that hangs holds a thread for long

_BROKEN = "the connection was closed without an answer"

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class NotAllowed(OSError):
    """The address may not be called."""


class Dialler:
    """An HTTP client for addresses that strangers have chosen."""

    def __init__(
        self,
        *,
        private: bool,
        proxy: str | None = None,
        resolve: Resolve | None = None,
        body_bytes: int = BODY_BYTES,
        lines: int = ANSWER_LINES,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._call_seconds = call_seconds
        self.private = private  # whether private addresses may be called
        self._body_bytes = body_bytes
        self._lines = lines
        self._threads = ThreadPoolExecutor(RESOLVING, "resolve callbacks")
        self._resolve = resolve or self._look_up
        self._proxy, self._proxy_login = _proxy_of(proxy)
        self._proxy_addresses: set[tuple[str, int]] = set()  # these alone are not judged
        self._resolver = _Resolver(self._resolved)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = BoundedConnector(
            answer_bytes=self._body_bytes + ANSWER_BYTES - BODY_BYTES,
            lines=self._lines,
            limit=0,  # the slots limit the calls
            use_dns_cache=False,
            resolver=self._resolver,
            socket_factory=self.open_socket,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            headers={"User-Agent": f"rsnotify/{__version__}"},
            skip_auto_headers=("Accept", "Accept-Encoding"),
            timeout=aiohttp.ClientTimeout(
                total=self._call_seconds, ceil_threshold=2 * self._call_seconds
            ),
            read_bufsize=BODY_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def refusal(self, url: str) -> str | None:
        """Why this callback may not be called, as far as that is known without resolving."""
        address = literal_address(URL(url, encoded=True).host or "")
        return None if address is None else refusal(address, private=self.private)

    async def get(self, url: str) -> CallAnswer:
        """Ask a callback to verify; return its answer with the whole body, the challenge."""
        return await self._call("GET", URL(url, encoded=True), None, {}, self._whole)

    async def post(
        self, url: URL, body: bytes, headers: Mapping[str, str], *, maybe_stale: bool
    ) -> CallAnswer:
        """Deliver a notification; only the status of the answer counts.

        A connection kept alive may have been closed by the other side at this very moment: then the
        request goes out again, once, on a new one.
        """
        answer = await self._call("POST", url, body, headers, self._rest)
        if maybe_stale and answer.status == 0 and answer.note == _BROKEN:
            answer = await self._call("POST", url, body, headers, self._rest)
        return answer

    async def _call(
        self,
        method: str,
        url: URL,
        body: bytes | None,
        headers: Mapping[str, str],
        read: Callable[[aiohttp.ClientResponse], Awaitable[bytes]],
    ) -> CallAnswer:
        assert self._session is not None, "use it in `async with`"  # noqa: S101
        begun = monotonic()
        try:
            is_by_proxy = self._proxy is not None and await self._goes_by_proxy(url)
            shown = self._proxy_login if is_by_proxy else {}
            is_tunnel = url.scheme == "https"
            async with self._session.request(
                method,
                url,
                data=body,
                headers=headers if is_tunnel else {**headers, **shown},
                allow_redirects=False,  # WEBSUB 17, 23: and it could lead anywhere
                proxy=self._proxy if is_by_proxy else None,
                proxy_headers=shown if is_tunnel else None,
            ) as response:
                seconds = monotonic() - begun
                content = await read(response)
                retry_after = response.headers.get("Retry-After")
                note = _printable(response.reason or "")
                return CallAnswer(response.status, note, retry_after, content, seconds)
        except (aiohttp.ClientError, TimeoutError, ValueError, OSError) as error:
            return _failure(error, monotonic() - begun)

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        """The body; nothing if it is too long."""
        parts, size = [], 0
        with suppress(AnswerTooLong):
            while part := await response.content.read(self._body_bytes + 1 - size):
                parts.append(part)
                size += len(part)
                if size > self._body_bytes:
                    raise AnswerTooLong
            return b"".join(parts)
        return b""

    async def _rest(self, response: aiohttp.ClientResponse) -> bytes:
        """Read a short body to its end, for the connection's sake; others cost the connection."""
        if not response.content.at_eof():
            with suppress(TimeoutError, aiohttp.ClientError):
                async with asyncio.timeout(REST_SECONDS):
                    await self._whole(response)
        return b""

    async def _goes_by_proxy(self, url: URL) -> bool:
        """Whether to call it by the proxy: not at a private address, if that may be called at all.

        A name that cannot be looked up here is left to the proxy.
        """
        host = url.host or ""
        if (known := literal_address(host)) is not None:
            addresses: Sequence[str] = [known]
        else:
            try:
                addresses = await self._resolve(host, url.port or 0)
            except OSError:
                return True
        for address in addresses:
            self._check(address)
        return not any(refusal(address, private=False) for address in addresses)

    async def _resolved(self, host: str, port: int) -> Sequence[str]:
        """Addresses that may be connected to; those of the proxy are the operator's choice."""
        addresses = await self._resolve(host, port)
        if self._proxy is not None and (host, port) == (self._proxy.host, self._proxy.port):
            self._proxy_addresses.update((address, port) for address in addresses)
            return addresses
        for address in addresses:
            self._check(address)
        return addresses

    def _check(self, address: str) -> None:
        try:
            reason = refusal(address, private=self.private)
        except ValueError:
            reason = f"{address[:80]} is not an address"
        if reason is not None:
            raise NotAllowed(f"not allowed: {reason}")

    def open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """The last check: sockets are made for allowed addresses only."""
        family, type_, protocol, _, where = address
        is_proxy = self._proxy is not None and (where[0], where[1]) in (
            *self._proxy_addresses,
            (self._proxy.host, self._proxy.port),
        )
        if not is_proxy:
            self._check(where[0])
        return socket.socket(family, type_, protocol)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        """The system's resolver, in threads of its own: one that hangs must not stop the others."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _getaddrinfo, host, port)
        return [str(where[0]) for *_, where in found]


def _getaddrinfo(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)


class _Resolver(AbstractResolver):
    """Resolves once and lets nothing through if any of the addresses is not allowed."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002
    ) -> list[ResolveResult]:
        return [_result(host, port, address) for address in await self._resolve(host, port)]

    async def close(self) -> None:
        pass


def _result(host: str, port: int, address: str) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=family,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


def _proxy_of(address: str | None) -> tuple[URL | None, dict[str, str]]:
    """The proxy and its login, kept apart so that no error shows the password."""
    if address is None:
        return None, {}
    url = URL(address)
    if url.user is None:
        return url, {}
    login = b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
    return url.with_user(None), {"Proxy-Authorization": f"Basic {login}"}


def _printable(text: str) -> str:
    """A stranger's words as they may be stored and logged: no controls, no undecodable bytes."""
    return "".join(each if each.isprintable() else "?" for each in text[:80])


def _failure(error: Exception, seconds: float) -> CallAnswer:
    """What went wrong, in words for the operator."""
    cause = getattr(error, "os_error", error)
    if isinstance(cause, NotAllowed):
        return CallAnswer(0, str(cause), seconds=seconds, reached=False, refused=True)
    unreached = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError)
    reached = not isinstance(error, unreached)
    return CallAnswer(0, _words(error, cause, seconds), seconds=seconds, reached=reached)


def _words(error: Exception, cause: object, seconds: float) -> str:
    match error:
        case TimeoutError():
            return f"no answer within {seconds:.0f} s"
        case aiohttp.ClientConnectorCertificateError():
            return _not_trusted(error)
        case aiohttp.ClientConnectorError():
            to = " to the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
            return f"no connection{to}: {cause}"
        case aiohttp.ServerDisconnectedError() | ConnectionError():
            return _BROKEN
        case AnswerTooLong() | aiohttp.ClientHttpProxyError():
            status = getattr(error, "status", None)
            return str(error) if status is None else f"the proxy answers {status}"
        case _:
            return f"no HTTP answer: {_printable(str(error)) or type(error).__name__}"


def _not_trusted(error: aiohttp.ClientConnectorCertificateError) -> str:
    said = getattr(error.certificate_error, "verify_message", "")
    return f"its certificate is not trusted: {said}" if said else "its certificate is not trusted"
