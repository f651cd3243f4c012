"""TLS before a Redis: with an authority of its own, and a certificate asked of whoever comes.

`server.pem` is for `localhost` and nothing else; `hub.pem` is what a hub may show.
"""

import asyncio
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread

from tests.support.stream_server import StreamServer

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
    async with StreamServer(partial(_carry, port), ssl=context) as server:
        yield server.port


async def _carry(port: int, reader: StreamReader, writer: StreamWriter) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)
    both = [asyncio.create_task(_hand_on(*way)) for way in ((reader, back), (there, writer))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        back.transport.abort()
        writer.transport.abort()
        await asyncio.gather(*both, return_exceptions=True)


async def _hand_on(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
