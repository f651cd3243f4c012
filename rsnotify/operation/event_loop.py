"""How late the event loop wakes whoever sleeps: the delay that everybody feels."""

import asyncio
from time import monotonic

TICK_SECONDS = 0.25
REMEMBERED = 40  # ticks: ten seconds


class EventLoopDelay:
    """Measures it four times a second."""

    def __init__(self) -> None:
        self._delays = [0.0] * REMEMBERED
        self._at = 0

    def longest(self) -> float:
        """Of the last ten seconds."""
        return max(self._delays)

    async def run(self) -> None:
        """Measure for as long as the hub runs."""
        while True:
            due = monotonic() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self._delays[self._at] = max(0.0, monotonic() - due)
            self._at = (self._at + 1) % REMEMBERED
