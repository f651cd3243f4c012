"""The endpoint of every channel's WebSocket: refused with an HTTP error, or accepted.

A page sees no status of a handshake that is refused, but close codes; so what is wrong with a
request that might be a page's is said after the handshake.
"""

from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from rsnotify.channels.admission import ChannelEntry
from rsnotify.channels.channels import Channels
from rsnotify.channels.plain_asgi import MessageReader, SendingTransport, texts_of
from rsnotify.channels.requested_channels import (
    requested_channels,
    requested_filter,
    subprotocol_of,
)
from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.forms import XML, Form
from rsnotify.resourcesync.notification import FROM_HEADER, kind_named

READER = "rsnotify.reader"
"""The ASGI extension through which the handshake hands over the connection."""


class WebSocketEndpoint:
    """Opens WebSockets."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._admission = channels.admission

    async def open(self, websocket: WebSocket) -> None:
        """Refuse with an HTTP error, or accept the WebSocket and let it join its channels."""
        kind, admission = kind_named(websocket.path_params["kind"]), self._admission
        entry: ChannelEntry | Rejected | TryAgain
        try:
            wanted = requested_channels(websocket, kind)
            filter_ = requested_filter(websocket, kind)
        except Rejected as error:  # of the query: a web page sees a close code, but no status
            entry = error
        else:
            admitted = await admission.admit(websocket, wanted)
            try:
                entry = await admission.entry(
                    websocket, wanted, admitted, admission.cursor, filter_
                )
            except (Rejected, TryAgain) as error:  # sent as a close frame after the handshake
                entry = error
        await websocket.accept(
            subprotocol_of(websocket), headers=_start_header(entry)
        )  # the reader gets everything that is published from here on
        form = entry.form if isinstance(entry, ChannelEntry) else XML
        take_reader = websocket.scope["extensions"].get(READER)
        if take_reader is None:
            await self._send_by_server(websocket, form, entry)
            return
        reader = take_reader(form)
        if reader is not None:  # None if the peer has left meanwhile
            self._channels.join(reader, entry)

    async def _send_by_server(
        self, websocket: WebSocket, form: Form, entry: ChannelEntry | Rejected | TryAgain
    ) -> None:
        """Serve a reader whose connection belongs to another ASGI server."""
        transport = SendingTransport()
        reader = MessageReader(transport, self._channels.reader_input, form)
        reader.take_over()
        self._channels.join(reader, entry)

        async def send(frames: bytes) -> None:
            for text in texts_of(frames):
                await websocket.send_text(text)

        with suppress(WebSocketDisconnect):
            await transport.run(websocket.receive, send)
            await websocket.close(transport.close_code, transport.close_reason)


def _start_header(entry: ChannelEntry | Rejected | TryAgain) -> list[tuple[bytes, bytes]]:
    """The header with the reader's position, from which it can resume if nothing else came."""
    if not isinstance(entry, ChannelEntry):
        return []
    return [(FROM_HEADER.lower().encode(), entry.cursor.encode())]
