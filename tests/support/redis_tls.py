"""TLS before a Redis: with an authority of its own, and a certificate asked of whoever comes.

`server.pem` is for `localhost` and nothing else; `hub.pem` is what a hub may show.
"""

import asyncio
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Thread

FOLDER = Path(__file__).parent / "redis-tls"
AUTHORITY, SERVER, HUB = (FOLDER / f"{name}.pem" for name in ("authority", "server", "hub"))
ENDED = FOLDER / "ended.pem"  # of `localhost`, by itself, until 2021
TRUSTING = f"?ssl_ca_certs={AUTHORITY}"
WITH_CERTIFICATE = f"{TRUSTING}&ssl_certfile={HUB}&ssl_keyfile={HUB}"


def demanding() -> ssl.SSLContext:
    """Of a server that asks for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SERVER)
    context.load_verify_locations(AUTHORITY)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def refusing() -> Iterator[int]:
    """A port where a certificate is missed, and that is said, as Redis says it.

    A thread, for asyncio would hang up without a word.
    """
    context = demanding()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # until the listener is closed
                while True:
                    peer, _ = listener.accept()
                    with suppress(OSError), context.wrap_socket(peer, server_side=True) as spoken:
                        spoken.recv(1)

        thread = Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@asynccontextmanager
async def tls_before(port: int, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port that speaks TLS, and hands on to that one."""
    context = context or demanding()
    ways: set[asyncio.Task[None]] = set()

    def connect(reader: StreamReader, writer: StreamWriter) -> None:
        way = asyncio.create_task(_carry(reader, writer, port))
        ways.add(way)
        way.add_done_callback(ways.discard)
        way.add_done_callback(lambda _: writer.transport.abort())  # of one that never began, too

    server = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _carry(reader: StreamReader, writer: StreamWriter, port: int) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)
    both = [asyncio.create_task(_hand_on(*way)) for way in ((reader, back), (there, writer))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        back.transport.abort()
        writer.transport.abort()


async def _hand_on(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
