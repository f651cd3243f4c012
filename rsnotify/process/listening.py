"""The sockets that a hub listens on: one for each process, made by the process that starts them.

Before they are closed, new connections are dropped for a moment, and all that wait are accepted:
the kernel would reset them, and a proxy may have sent a publish by then.

A connection that nobody has accepted yet belongs to its socket. The parent of several processes
keeps their sockets open, so such a connection waits for the next process and is not reset.
"""

import asyncio
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from rsnotify.errors import InvalidSettings
from rsnotify.process.reachable import reachable
from rsnotify.process.settings import Settings
from rsnotify.process.steering import NO_NEW_CONNECTION, SO_ATTACH_FILTER, attach

BACKLOG = 4_096  # thousands of Destinations may reconnect at once
ACCEPT_SECONDS = 0.1  # for handshakes that are under way
ACCEPT_LOOP_PASSES = 3  # until the protocol of who was accepted last knows of it


@contextmanager
def bound_sockets(settings: Settings, inherited: int | None) -> Iterator[Sequence[socket.socket]]:
    """One for each process, bound but not listening yet; a worker gets its own from its parent."""
    with ExitStack() as held:
        if inherited is not None:
            yield [held.enter_context(socket.socket(fileno=inherited))]
            return
        bound: list[socket.socket] = []
        for _ in range(settings.workers):
            port = bound[0].getsockname()[1] if bound else settings.port
            one = _bound(settings.host, port, share=settings.workers > 1)
            bound.append(held.enter_context(one))
        yield bound


def _bound(host: str, port: int, *, share: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if share:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise InvalidSettings(
            [f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port"]
        ) from None
    return made


async def accept_the_last(sockets: Sequence[socket.socket]) -> None:
    """Before they are closed: nothing that has connected is left behind in them.

    Whoever tries to connect now gets no answer, tries again after a second, by the rules of TCP,
    and is refused then: so nothing was handed over.
    """
    with suppress(OSError):  # not Linux, or not allowed
        for bound in sockets:
            attach(bound, SO_ATTACH_FILTER, NO_NEW_CONNECTION)
    await asyncio.sleep(ACCEPT_SECONDS)
    waiting = select.poll()
    for bound in sockets:
        waiting.register(bound, select.POLLIN)
    for _ in range(BACKLOG):
        if not waiting.poll(0):
            break
        await asyncio.sleep(0)  # uvloop accepts one in each pass, and may have been busy so far
    for _ in range(ACCEPT_LOOP_PASSES):
        await asyncio.sleep(0)


def address_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    host = reachable(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
