"""A channel by WebSocket, as an event stream or by long polls; it yields payloads.

Rules that hold here: what one transport cannot do is left to the next, unless one was chosen. A
silent connection is pinged, and given up if it does not answer, because a network may stop passing
bytes without saying so. The position at which the peer begins is known before anything else comes.
A channel leads no further than any other address of the Source.
"""

import asyncio
import re
from codecs import BOM_UTF8
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from time import time
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidMessage,
    InvalidProxyStatus,
    InvalidStatus,
    ProxyError,
    WebSocketException,
)

from rsnotify.errors import PROBLEM, CloseCode, Rejected, TryAgain
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.notification import FROM_HEADER
from rsnotify_client.address import joined, shown
from rsnotify_client.answer import AGAIN, UNTRUSTED, cause_of, untrusted
from rsnotify_client.bounded import reached
from rsnotify_client.discovery import http_twin
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.longpoll import StreamFollower, begin_all, merged, streams_beside
from rsnotify_client.network import OutOfReach, Proxy, without_login
from rsnotify_client.notification import (
    TRANSPORTS,
    Channel,
    ChannelTransport,
    Cut,
    Lost,
    NoChannel,
    Renewed,
    TooOld,
    resumed,
)
from rsnotify_client.transport import CONNECT_SECONDS, WANTS_PASSWORD
from rsnotify_client.web import (
    MOVED,
    REDIRECTS,
    Refused,
    Reply,
    Unreachable,
    Web,
    again,
    detail_of,
    origin_of,
)

NOTIFICATION_BYTES = 16 * 1024 * 1024
QUIET_SECONDS = 35.0  # the hub pings every 25 s
PONG_SECONDS = 10.0
LONGEST_SLEEP_SECONDS = 3_600.0
UNAUTHORIZED = 401
GATEWAY = (502, 504)  # what is said by something that stands between
FINAL = frozenset(code for code in CloseCode if code.is_final)  # another try would end the same
EVENT_STREAM = "text/event-stream"
ASKS_FOR_EVENTS = {"Accept": EVENT_STREAM}


@asynccontextmanager
async def open_channel(
    web: Web,
    url: str,
    cursor: Position | None,
    transports: Sequence[ChannelTransport] = TRANSPORTS,
) -> AsyncIterator[Channel]:
    """Open a channel by the first of these transports that it has and that passes."""
    async with AsyncExitStack() as stack:
        yield await _opened(stack, web, url, cursor, transports)


async def _opened(
    stack: AsyncExitStack,
    web: Web,
    url: str,
    cursor: Position | None,
    transports: Sequence[ChannelTransport],
) -> Channel:
    barred: Exception | None = None
    for transport in transports:
        try:
            channel = await _OPENERS[transport](stack, web, url, cursor)
        except (NoChannel, Unreachable) as error:
            if transport == "websocket":
                raise
            if barred is None or isinstance(error, Unreachable):  # else the first says best why
                barred = error
        else:
            if channel is not None:
                return channel
    if barred is None and "websocket" in transports:
        async with web.ask(resumed(http_twin(url), cursor), headers=ASKS_FOR_EVENTS) as answer:
            await _check(url, answer, is_right=_is_event_stream(answer))
        raise Lost(f"no WebSocket can be opened at {url.partition('?')[0]}")
    raise barred or Rejected(
        f"{url.partition('?')[0]} cannot be read by long polls, which only a hub of rsnotify has: "
        "leave the transport out"
    )


async def _by_websocket(
    stack: AsyncExitStack, web: Web, url: str, cursor: Position | None
) -> Channel | None:
    if not url.startswith(("ws://", "wss://")):
        return None
    socket = await _handshake(web, resumed(url, cursor))
    if socket is None:
        return None
    stack.push_async_callback(socket.close)
    shown = {} if socket.request is None else socket.request.headers
    renewal = _until_renewed(web, shown, _messages(socket), socket.close)
    messages = await stack.enter_async_context(aclosing(renewal))
    begins, date = _header(socket, FROM_HEADER), _header(socket, "Date")
    return Channel(messages, begins, _ahead_seconds(date))


async def _by_events(stack: AsyncExitStack, web: Web, url: str, cursor: Position | None) -> Channel:
    url = http_twin(url)
    asking = web.ask(resumed(url, cursor), headers=ASKS_FOR_EVENTS)
    answer = await stack.enter_async_context(asking)
    await _check(url, answer, is_right=_is_event_stream(answer))
    answer.never_ends()
    renewal = _until_renewed(web, answer.shown, _events(answer), answer.abort)
    events = await stack.enter_async_context(aclosing(renewal))
    begins, date = (answer.headers.get(each) for each in (FROM_HEADER.lower(), "date"))
    return Channel(events, begins, _ahead_seconds(date))


async def _by_polls(
    stack: AsyncExitStack, web: Web, url: str, cursor: Position | None
) -> Channel | None:
    """Each request has the newest token, so none is renewed while it waits."""
    readers = [StreamFollower(web, each, _check) for each in streams_beside(url, cursor)]
    if not readers:
        return None
    await begin_all(readers)
    polls = readers[0].messages() if len(readers) == 1 else merged(readers)
    messages = await stack.enter_async_context(aclosing(polls))
    announced = ",".join(f"{each.set_name}@{each.begins}" for each in readers)
    begins = announced if len(readers) > 1 else str(readers[0].begins)
    return Channel(messages, begins, _ahead_seconds(readers[0].date))


_OPENERS: Mapping[ChannelTransport, Callable[..., Awaitable[Channel | None]]] = {
    "websocket": _by_websocket,
    "sse": _by_events,
    "long-poll": _by_polls,
}


async def _until_renewed(
    web: Web,
    shown: Mapping[str, str],
    payloads: AsyncGenerator[bytes | str, None],
    end: Callable[[], Awaitable[None]],
) -> AsyncGenerator[bytes | str, None]:
    """The payloads; `Renewed` once there is another token than the one that was shown.

    It is asked for before that one ends, while what comes is handed on; so no renewal is waited
    for. A channel that is closed because the token has ended asks for another one, too.
    """
    is_renewed = asyncio.Event()
    renewing = asyncio.create_task(_end_when_renewed(web, shown, is_renewed, end))
    try:
        async with aclosing(payloads):
            async for payload in payloads:
                yield payload
    except Lost:
        if not is_renewed.is_set():
            raise
        raise Renewed(was_refused=False) from None
    except Rejected as refused:
        if refused.close_code != CloseCode.NOT_ALLOWED or not await web.has_others(shown):
            raise
        raise Renewed(was_refused=True) from None
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def _end_when_renewed(
    web: Web,
    shown: Mapping[str, str],
    is_renewed: asyncio.Event,
    end: Callable[[], Awaitable[None]],
) -> None:
    is_there = False
    while not is_there:
        seconds = web.credentials.seconds_left(shown)
        await asyncio.sleep(min(seconds, LONGEST_SLEEP_SECONDS))
        if seconds <= LONGEST_SLEEP_SECONDS:
            with suppress(TryAgain, InvalidArgument):  # it was logged, and is asked for again
                is_there = await web.has_others(shown)
    is_renewed.set()
    await end()


def _ahead_seconds(date: str | None) -> float:
    return max(0.0, (date_seconds(date) or 0.0) - time())


class _Once(connect):
    """One handshake; decides whether a redirect is followed, and with which token."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


async def _handshake(web: Web, url: str) -> ClientConnection | None:
    """None if what answers speaks no WebSocket there."""
    asked, is_renewed = url, False
    for _ in range(REDIRECTS + 2):
        if web.reach is not None and (why := web.reach.why_not_asked(url)) is not None:
            raise _out_of_reach(asked, url, why)
        scheme, host, port = origin_of(url)
        proxy = web.network.proxies.lead_to(scheme, host, port)
        shown = await web.headers_in_a_loop(url, asked)
        try:
            return await _connected(web, url, proxy, shown)
        except InvalidStatus as refused:
            status = refused.response.status_code
            if status == UNAUTHORIZED and not is_renewed and await web.has_others(shown):
                is_renewed = True
                continue
            to = refused.response.headers.get("Location")
            if status not in MOVED or to is None:
                return None
            named = _socket_twin(joined(url, to))
            if named is None or (scheme == "https" and not named.startswith("wss:")):
                return None
            url = named
        except OutOfReach as error:
            raise _out_of_reach(asked, url, str(error)) from None
        except InvalidMessage as error:
            if not isinstance(error.__cause__, EOFError):
                return None  # HTTP/1.0, or no HTTP: a request without a handshake will show
            raise _unreached(url, error, proxy) from None
        except TimeoutError:
            return None  # perhaps something on the way holds back an answer that it does not know
        except (WebSocketException, OSError, ValueError) as error:
            raise _unreached(url, error, proxy) from None
    raise Refused(f"{url} is redirected more than {REDIRECTS} times")


async def _connected(
    web: Web, url: str, proxy: Proxy | None, shown: Mapping[str, str]
) -> ClientConnection:
    options: dict[str, Any] = {"ssl": web.tls} if url.startswith("wss:") else {}
    if proxy is not None and proxy.scheme == "https":
        options["proxy_ssl"] = web.tls
    seconds = web.network.timeout_seconds or CONNECT_SECONDS
    async with asyncio.timeout(seconds):
        if proxy is None and web.reach is not None:
            _, host, port = origin_of(url)
            options["sock"] = await web.threads.run(reached, web.reach, host, port, seconds)
        return await _Once(
            without_login(url),
            additional_headers=shown,
            user_agent_header=web.network.agent,
            proxy=proxy and proxy.url,
            compression=None,
            open_timeout=None,
            ping_interval=None,  # see _messages: who reads slowly must not count as silent
            close_timeout=1.0,
            max_size=NOTIFICATION_BYTES,
            max_queue=2,
            **options,
        )


def _out_of_reach(asked: str, url: str, why: str) -> Refused:
    shown = [without_login(each).partition("?")[0] for each in dict.fromkeys([asked, url])]
    return Refused(": ".join([*shown, why]))


def _socket_twin(url: str) -> str | None:
    """The WebSocket address of an http one."""
    scheme, separator, rest = url.partition("://")
    twin = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(scheme)
    return None if twin is None else twin + separator + rest


def _unreached(url: str, error: Exception, proxy: Proxy | None) -> Exception:
    if (why := untrusted(error)) is not None:
        place = urlsplit(without_login(url)).netloc
        return Rejected(f"{place} is not spoken to: {why}", status=UNTRUSTED)
    cause = cause_of(error)
    if isinstance(error, ProxyError) and proxy is not None:
        is_refused = isinstance(error, InvalidProxyStatus) and error.response.status_code == 407
        cause = WANTS_PASSWORD if is_refused else cause_of(error.__cause__ or error)
        cause = f"the proxy {proxy.host}:{proxy.port}: {cause}"
    return Unreachable(url.partition("?")[0], cause)


def _header(socket: ClientConnection, name: str) -> str | None:
    return None if socket.response is None else socket.response.headers.get(name)


async def _messages(socket: ClientConnection) -> AsyncGenerator[bytes | str, None]:
    """Yield messages; if none comes, ping the peer, and give up if nothing comes then either."""
    lost: type[Lost] = Cut
    try:
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    message = await socket.recv()
            except TimeoutError:
                await _ask(socket, lost)
                lost = Lost
            else:
                lost = Lost
                yield message
    except ConnectionClosed as closed:
        raise _ended(closed, lost) from None


async def _ask(socket: ClientConnection, lost: type[Lost]) -> None:
    try:
        async with asyncio.timeout(PONG_SECONDS):
            await (await socket.ping())
    except TimeoutError:
        raise lost(_silence()) from None


def _silence() -> str:
    return f"nothing came for {QUIET_SECONDS + PONG_SECONDS:.0f} s"


def _ended(closed: ConnectionClosed, lost: type[Lost]) -> Exception:
    if closed.rcvd is None:  # what we close ourselves has its reason, as one that is too long
        return lost("the hub is gone") if closed.sent is None else Lost(str(closed.sent))
    code, reason = closed.rcvd.code, shown(closed.rcvd.reason)
    if code == CloseCode.HISTORY_GONE:
        return TooOld(reason)
    if code in FINAL:
        return Rejected(reason or f"the channel was closed with {code}", close_code=code)
    return Lost(f"{code} {reason}".strip())


def _is_event_stream(answer: Reply) -> bool:
    return answer.status == 200 and answer.headers.get("content-type", "").startswith(EVENT_STREAM)


async def _check(url: str, answer: Reply, *, is_right: bool = False) -> None:
    """Raise for a stream's status what a WebSocket's close code would mean, unless it is right."""
    if is_right:
        return
    url = url.partition("?")[0]  # a token may stand there
    if answer.status in GATEWAY:
        raise Unreachable(url, f"the answer was {answer.status}")
    if answer.status in AGAIN:
        raise again(url, answer)
    is_problem = answer.headers.get("content-type", "").startswith(PROBLEM)  # of a hub
    detail = detail_of(await answer.read(2**16)) if is_problem else None
    if answer.status == 410:
        raise TooOld(detail or "the journal no longer has it")
    if detail is None or answer.status == 200:
        raise NoChannel(url, answer.status, answer.headers.get("content-type"))
    raise Rejected(detail, status=answer.status)


LINE_END = re.compile(rb"\r\n|\r|\n")


class Events:
    """Server-sent events, as the pieces of a stream bring them."""

    def __init__(self) -> None:
        self._rest = b""  # of a line that has not ended
        self._is_after_cr = False  # which ends a line; an LF that follows belongs to it
        self._is_begun = False
        self._data: list[str] = []
        self._size = 0

    def take(self, piece: bytes) -> Iterator[str]:
        """The data of each event that this piece completes."""
        if self._is_after_cr:
            piece = piece.removeprefix(b"\n")
        self._is_after_cr = piece.endswith(b"\r")
        first, *more = LINE_END.split(piece)
        *lines, self._rest = self._rest + first, *more
        if len(self._rest) > NOTIFICATION_BYTES:
            raise Lost(f"a line is longer than {NOTIFICATION_BYTES} bytes")
        for line in lines:
            if not self._is_begun:
                self._is_begun, line = True, line.removeprefix(BOM_UTF8)  # noqa: PLW2901
            if (data := self._line(line.decode(errors="replace"))) is not None:
                yield data

    def _line(self, line: str) -> str | None:
        """The data of an event that this line completes."""
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
                self._size += len(line)  # what is empty takes room, too
            if self._size > NOTIFICATION_BYTES:
                raise Lost(f"an event is longer than {NOTIFICATION_BYTES} bytes")
            return None
        data, self._data, self._size = self._data, [], 0
        return "\n".join(data) if data else None


async def _events(answer: Reply) -> AsyncGenerator[str, None]:
    events, pieces = Events(), 0
    while True:
        lost = Cut if pieces < 2 else Lost  # the first comes with the head
        try:
            async with asyncio.timeout(QUIET_SECONDS + PONG_SECONDS):
                piece = await answer.next_piece()
        except TimeoutError:
            raise lost(_silence()) from None
        except Unreachable as error:
            raise lost(error.cause) from None
        if not piece:
            raise lost("the hub closed the stream")
        pieces += 1
        for data in events.take(piece):
            yield data
