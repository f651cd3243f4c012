"""What a worker owes the process that started it: to tell how busy it is, and to end with it."""

import asyncio
import os
import sys
from collections.abc import Sized
from contextlib import suppress
from threading import Thread
from time import monotonic

CONNECTIONS = b"connections "  # begins a line in which a worker tells how many it has
TELL_SECONDS = 0.1
SILENT_SECONDS = 2.0  # after these a worker gets no new connections


def end_with_parent() -> None:
    """End this worker at once if its parent was killed: the next hub must be alone."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):  # releases the GIL while it waits
            pass
        os._exit(1)

    Thread(target=watch, name="watch the parent", daemon=True).start()


async def tell_parent(connections: Sized) -> None:
    """Tell the parent how many connections this worker has, and so that it lives."""
    descriptor = sys.stdout.fileno()
    os.set_blocking(descriptor, False)
    told, last = -1, 0.0
    while True:
        now, count = monotonic(), len(connections)
        if count != told or now - last >= SILENT_SECONDS / 4:
            with suppress(BlockingIOError, BrokenPipeError):  # the parent hangs, or is dead
                os.write(descriptor, b"%s%d\n" % (CONNECTIONS, count))
            told, last = count, now
        await asyncio.sleep(TELL_SECONDS)
