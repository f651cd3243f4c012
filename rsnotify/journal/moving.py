"""Waits a little for a Redis Cluster that moves the keys of a set to another node."""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from rsnotify.errors import KeysMoving

MOVING_SECONDS = 2.0  # then whoever asked hears 503, before three seconds have passed
AGAIN_SECONDS = 0.05

Done = TypeVar("Done")


async def when_moved(act: Callable[[], Awaitable[Done]]) -> Done:
    """Do it; again, as long as nothing could be done because the keys are being moved."""
    until = monotonic() + MOVING_SECONDS
    while True:
        try:
            return await act()
        except KeysMoving:
            if monotonic() > until:
                raise
        await asyncio.sleep(AGAIN_SECONDS)
