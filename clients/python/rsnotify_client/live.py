"""One connection to a channel, by WebSocket or as an event stream; it yields payloads.

Rules that hold here: a connection on which nothing is heard is asked, and given up if it does not
answer, for a network may stop passing bytes without saying so. Where the peer says it begins is
known before anything else comes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from aiohttp import WSMsgType

from rsnotify.errors import PROBLEM, Rejected
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import FROM_HEADER
from rsnotify_client.cause import cause_of, untrusted
from rsnotify_client.channel import (
    PONG_SECONDS,
    QUIET_SECONDS,
    Channel,
    Lost,
    NoChannel,
    TooOld,
    resumed,
)
from rsnotify_client.discovery import http_twin
from rsnotify_client.web import AGAIN, REDIRECTS, Refused, Unreachable, Web, again, detail_of

NOTIFICATION_BYTES = 16 * 1024 * 1024
REFUSED = frozenset({1008, 4400, 4404})  # another try would end the same
TOO_OLD = 4410
EVENT_STREAM = "text/event-stream"


@asynccontextmanager
async def open_channel(
    web: Web,
    url: str,
    cursor: Position | None,
    *,
    quiet_seconds: float = QUIET_SECONDS,
    pong_seconds: float = PONG_SECONDS,
) -> AsyncIterator[Channel]:
    """A WebSocket; where that cannot be had, an event stream, which also says why not."""
    if url.startswith(("ws://", "wss://")):
        try:
            socket = await _handshake(web, resumed(url, cursor))
        except aiohttp.WSServerHandshakeError:
            url = http_twin(url)
        else:
            async with socket:
                messages = _messages(socket, quiet_seconds, pong_seconds)
                yield Channel(messages, _header(socket, FROM_HEADER))
            return
    async with _stream(web, resumed(url, cursor)) as answer:
        await _check(url, answer)
        yield Channel(
            _events(answer, quiet_seconds + pong_seconds),
            answer.headers.get(FROM_HEADER),
        )


@asynccontextmanager
async def _stream(web: Web, url: str) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = web.headers(url) | {"Accept": EVENT_STREAM}
    try:
        async with web.session.get(url, headers=headers, max_redirects=REDIRECTS) as answer:
            yield answer
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, aiohttp.TooManyRedirects):
        raise Refused(f"{url} leads to no address that can be fetched") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _unreached(url, error) from None


def _unreached(url: str, error: Exception) -> Exception:
    if (why := untrusted(error)) is not None:
        return Rejected(f"{urlsplit(url).netloc} is not spoken to: {why}")
    return Unreachable(url.partition("?")[0], cause_of(error))


async def _handshake(web: Web, url: str) -> aiohttp.ClientWebSocketResponse:
    try:
        return await web.session.ws_connect(
            url,
            headers=web.headers(url),
            autoping=False,
            max_msg_size=NOTIFICATION_BYTES,
            timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
        )
    except aiohttp.WSServerHandshakeError:
        raise
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise _unreached(url, error) from None


def _header(socket: aiohttp.ClientWebSocketResponse, name: str) -> str | None:
    answer = socket._response  # aiohttp offers no other way to the headers of the handshake
    return answer.headers.get(name)


async def _messages(
    socket: aiohttp.ClientWebSocketResponse, quiet_seconds: float, pong_seconds: float
) -> AsyncIterator[bytes | str]:
    has_asked = False
    while True:
        try:
            message = await socket.receive(pong_seconds if has_asked else quiet_seconds)
        except TimeoutError:
            if has_asked:
                raise Lost(f"nothing was heard for {quiet_seconds + pong_seconds:.0f} s") from None
            has_asked = True
            await _send(socket.ping())
            continue
        has_asked = False
        if message.type is WSMsgType.PING:
            await _send(socket.pong(message.data))
        elif message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
            yield message.data
        elif message.type is not WSMsgType.PONG:
            raise _ended(socket, message)


async def _send(sending: "asyncio.Future[None] | object") -> None:
    try:
        await sending  # type: ignore[misc]
    except (aiohttp.ClientError, OSError) as error:
        raise Lost(cause_of(error)) from None


def _ended(socket: aiohttp.ClientWebSocketResponse, message: aiohttp.WSMessage) -> Exception:
    code = message.data if message.type is WSMsgType.CLOSE else socket.close_code
    reason = str(message.extra or "") if message.type is WSMsgType.CLOSE else ""
    if code == TOO_OLD:
        return TooOld(reason)
    if code in REFUSED:
        return Rejected(reason or f"the channel was closed with {code}", close_code=code)
    if message.type is not WSMsgType.CLOSE:
        return Lost("the hub is gone")
    return Lost(f"{code} {reason}".strip())


async def _check(url: str, answer: aiohttp.ClientResponse) -> None:
    """What a WebSocket is told by a close code, a stream is told by its status."""
    is_stream = answer.headers.get("Content-Type", "").startswith(EVENT_STREAM)
    if answer.status == 200 and is_stream:
        return
    url = url.partition("?")[0]  # a token may stand there
    if answer.status in AGAIN:
        raise again(url, answer)
    is_problem = answer.headers.get("Content-Type", "").startswith(PROBLEM)  # of a hub
    detail = detail_of(await answer.content.read(2**16)) if is_problem else None
    if answer.status == 410:
        raise TooOld(detail or "the journal no longer has it")
    if detail is None or answer.status == 200:
        raise NoChannel(url, answer.status)
    raise Rejected(detail, status=answer.status)


class Events:
    """The fields of server-sent events, line by line."""

    def __init__(self) -> None:
        self._data: list[str] = []
        self._size = 0

    def line(self, line: str) -> str | None:
        """The data of an event that this line completes."""
        if line:
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value.removeprefix(" "))
                self._size += len(value)
            if self._size > NOTIFICATION_BYTES:
                raise Lost(f"an event is longer than {NOTIFICATION_BYTES} bytes")
            return None
        data, self._data, self._size = self._data, [], 0
        return "\n".join(data) if data else None


async def _events(answer: aiohttp.ClientResponse, silence_seconds: float) -> AsyncIterator[str]:
    events, rest = Events(), b""
    while True:
        try:
            async with asyncio.timeout(silence_seconds):
                piece = await answer.content.readany()
        except TimeoutError:
            raise Lost(f"nothing was heard for {silence_seconds:.0f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Lost(cause_of(error)) from None
        if not piece:
            raise Lost("the hub closed the stream")
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > NOTIFICATION_BYTES:
            raise Lost(f"a line is longer than {NOTIFICATION_BYTES} bytes")
        for line in lines:
            if (data := events.line(line.rstrip(b"\r").decode(errors="replace"))) is not None:
                yield data
