"""The WebSocket handshake: uvicorn's protocol class until the connection is accepted or refused.

The handshake is a normal ASGI conversation, so the application does routing, access and refusal.
When it accepts, a `SocketReader` replaces this protocol, and nothing of the handshake is kept.
URLs may contain a token, so they are never logged.
"""

import asyncio
import logging
from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.datastructures import Headers
from websockets.headers import parse_subprotocol
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from rsnotify.channels.frames import SharedDeflate
from rsnotify.channels.reader_input import ReaderInput
from rsnotify.channels.received_frames import quiet
from rsnotify.channels.socket_reader import SocketReader
from rsnotify.channels.websocket_endpoint import READER
from rsnotify.errors import INTERNAL_ERROR, CloseCode
from rsnotify.http.connection_limits import ConnectionLimits
from rsnotify.http.input_turns import WEBSOCKET, BoundedInput
from rsnotify.http.sockets import address_of
from rsnotify.resourcesync.forms import Form

EARLY_BYTES = 4 * 1024  # that a peer may send before it is answered, though it should wait

log = logging.getLogger(__name__)

Message = Any  # ASGI's dictionaries


class Handshake(BoundedInput):
    """A connection from its request until it is accepted or refused."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        reader_input: ReaderInput,
    ) -> None:
        self.turns: ReaderInput = reader_input
        self._early = b""  # what follows the request
        self._app = config.loaded_app
        self._server_state = server_state
        self._app_state = app_state
        self.counted_in: ConnectionLimits | None = None  # until it ends, or is a reader's
        extensions = [SharedDeflate()] if config.ws_per_message_deflate else []
        self._protocol = ServerProtocol(extensions=extensions, logger=quiet)
        self._reader: SocketReader | None = None
        self._refusal: Response | None = None
        self._is_answered = False
        self._is_connecting = True
        self._is_asked = False
        self._disconnected = asyncio.Event()

    # --- called by the transport and the server -------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server_state.connections.add(self)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server_state.connections.discard(self)
        self._count_no_more()
        self.turns.leave(self)
        self._disconnected.set()

    def _count_no_more(self) -> None:
        if self.counted_in is not None:
            self.counted_in.leave(self)

    def receive_data(self, data: bytes) -> None:
        if self._is_asked:
            self._keep_early(data)
            return
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Request):
                self._receive_request(event)
        self._flush()

    def _keep_early(self, data: bytes) -> None:
        """Keep a little for the open connection: peers should wait for the answer."""
        self.turns.received.bytes[WEBSOCKET] += len(data)
        self._early += data
        if len(self._early) > EARLY_BYTES:
            self.turns.received.report_flood(WEBSOCKET, self.transport)
            self.transport.abort()

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops."""
        self._reject(503, "the hub is shutting down")
        self._disconnected.set()

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self.transport.write(data)
            elif not self.transport.is_closing():
                self.transport.close()

    # --- the conversation with the application -------------------------------------------------

    def _receive_request(self, request: Request) -> None:
        self._is_asked = True
        self._response = self._protocol.accept(request)
        if self._response.status_code != 101:
            self._send_response(self._response)
            return
        task = asyncio.get_running_loop().create_task(self._run_app(self._scope(request)))
        self._server_state.tasks.add(task)
        task.add_done_callback(self._server_state.tasks.discard)

    async def _run_app(self, scope: Message) -> None:
        try:
            await self._app(scope, self._receive, self._send)
        except Exception:
            log.exception("internal error in the handshake at %s", scope["path"])
        if self._reader is not None and self._reader.channel is None:
            self._reader.close(CloseCode.FAILED, INTERNAL_ERROR)
        if self._reader is not None:  # it is counted among the readers
            self._count_no_more()
        self._reject(500, INTERNAL_ERROR)

    def _scope(self, request: Request) -> Message:
        path, _, query = request.path.partition("?")
        return {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "wss" if self.transport.get_extra_info("sslcontext") else "ws",
            "server": address_of(self.transport, "sockname"),
            "client": address_of(self.transport, "peername"),
            "root_path": "",
            "path": unquote(path),
            "raw_path": _encoded(path),
            "query_string": _encoded(query),
            "headers": list(_encoded_headers(request.headers)),
            "subprotocols": _subprotocols(request.headers),
            "state": self._app_state.copy(),
            "extensions": {"websocket.http.response": {}, READER: self._take_reader},
        }

    def _take_reader(self, form: Form) -> SocketReader | None:
        """The open connection; None if it has ended before it was accepted."""
        if self._reader is not None:
            self._reader.write_in(form)
        return self._reader

    async def _receive(self) -> Message:
        if self._is_connecting:
            self._is_connecting = False
            return {"type": "websocket.connect"}
        await self._disconnected.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def _send(self, message: Message) -> None:
        if self._disconnected.is_set():
            return
        if self._is_answered:
            raise RuntimeError(f"{message['type']} after the end of the handshake")
        match message["type"]:
            case "websocket.accept":
                self._accept(message)
            case "websocket.close":
                self._reject(403, "refused")
            case "websocket.http.response.start":
                self._refusal = _response(message)
            case "websocket.http.response.body":
                self._send_refusal(message)

    # --- how it ends ---------------------------------------------------------------------------

    def _accept(self, message: Message) -> None:
        for name, value in message.get("headers", ()):
            self._response.headers[name.decode("latin-1")] = value.decode("latin-1")
        if message.get("subprotocol"):
            self._response.headers["Sec-WebSocket-Protocol"] = message["subprotocol"]
        self._send_response(self._response)
        is_deflated = bool(self._protocol.extensions)
        self._reader = SocketReader(self.transport, self.turns, is_deflated=is_deflated)
        self.turns.leave(self)
        self._reader.take_over()
        self._server_state.connections.discard(self)
        self._protocol.parser.close()  # breaks the cycle of generator and protocol
        if self._early:
            self._reader.receive_data(self._early)

    def _send_refusal(self, message: Message) -> None:
        assert self._refusal is not None  # noqa: S101
        self._refusal.body = bytes(self._refusal.body or b"") + message.get("body", b"")
        if not message.get("more_body", False):
            self._refusal.headers["Connection"] = "close"
            self._send_response(self._refusal)

    def _reject(self, status: int, text: str) -> None:
        if not self._is_answered and not self._disconnected.is_set():
            self._send_response(self._protocol.reject(status, text + "\n"))

    def _send_response(self, response: Response) -> None:
        self._is_answered = True
        if response.status_code != 101:
            response.headers["X-Content-Type-Options"] = "nosniff"
        self._protocol.send_response(response)
        self._flush()


def _encoded_headers(headers: Headers) -> Iterable[tuple[bytes, bytes]]:
    for name, value in headers.raw_items():
        yield _encoded(name.lower()), _encoded(value)


def _encoded(text: str) -> bytes:
    """The bytes of a request. The library decodes those above 0x7F as Latin-1; before version 17,
    as surrogates."""
    return text.encode("latin-1", "surrogateescape")


def _subprotocols(headers: Headers) -> list[str]:
    """Those that are offered; the handshake was refused if they could not be read."""
    offered = headers.get_all("Sec-WebSocket-Protocol")
    return [str(name) for value in offered for name in parse_subprotocol(value)]


def _response(message: Message) -> Response:
    headers = Headers(
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
    )
    headers["Date"] = formatdate(usegmt=True)
    status = message["status"]
    return Response(status, HTTPStatus(status).phrase, headers, b"")
