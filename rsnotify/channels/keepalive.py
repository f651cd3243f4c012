"""Finds readers that are gone by pings spread over time, and slow ones by time limits.

One timer wheel serves all readers. A reader whose socket is full is not pinged: it is closed only
if its unread bytes stop falling.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

from rsnotify.channels.reader import Reader
from rsnotify.errors import CloseCode

PING_SECONDS = 25.0  # proxies cut connections that are idle for 60
PONG_SECONDS = 20.0
TICK_SECONDS = 0.25
SLOTS = int(PING_SECONDS / TICK_SECONDS)
PONG_SLOTS = int(PONG_SECONDS / TICK_SECONDS)


class Keepalive:
    """A timer wheel: each tick pings the readers of one slot and checks the pongs of another."""

    def __init__(
        self, *, send_timeout_seconds: float, clock: Callable[[], float] = monotonic
    ) -> None:
        self._send_timeout_seconds = send_timeout_seconds
        self._clock = clock
        # A dict takes half the memory of a set.
        self._slots: list[dict[Reader, None]] = [{} for _ in range(SLOTS)]
        self._at = 0
        self._next_slot = 0
        self._blocked: dict[Reader, tuple[float, int]] = {}  # since when, and how many bytes unread

    async def run(self) -> None:
        """Tick for as long as the hub runs."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def add(self, reader: Reader) -> None:
        """Use the next slot, so that pings are spread even if all readers connect at once.

        A reader may come with a full socket, by what was written before it was a reader.
        """
        reader.slot = self._next_slot
        self._slots[reader.slot][reader] = None
        self._next_slot = (self._next_slot + 1) % SLOTS
        if reader.is_paused:
            self.watch(reader)

    def remove(self, reader: Reader) -> None:
        self._slots[reader.slot].pop(reader, None)
        self.unwatch(reader)

    def watch(self, reader: Reader) -> None:
        """The reader's socket is full: watch whether it reads on."""
        self._blocked[reader] = (self._clock(), reader.backlog())

    def unwatch(self, reader: Reader) -> None:
        self._blocked.pop(reader, None)

    def tick(self) -> None:
        now = self._clock()
        self._at = (self._at + 1) % SLOTS
        idle, busy = now + PONG_SECONDS, now + max(PONG_SECONDS, self._send_timeout_seconds)
        for reader in tuple(self._slots[self._at]):
            self._ping(reader, idle, busy)
        for reader in tuple(self._slots[self._at - PONG_SLOTS]):
            self._check_pong(reader, now)
        for reader in tuple(self._blocked):
            self._check_progress(reader, now)

    def _ping(self, reader: Reader, idle_deadline: float, busy_deadline: float) -> None:
        if reader.is_paused or reader.channel is None or not reader.ping():
            return
        pushed = reader.channel.pushed
        if reader.deadline is None:
            reader.deadline = idle_deadline if reader.pushed_at_ping == pushed else busy_deadline
        reader.pushed_at_ping = pushed

    def _check_pong(self, reader: Reader, now: float) -> None:
        """Close a reader whose pong is overdue. A full socket is judged by its progress instead."""
        if reader.deadline is not None and now >= reader.deadline and not reader.is_paused:
            reader.close(CloseCode.FAILED, f"no pong within {PONG_SECONDS:.0f} s")

    def _check_progress(self, reader: Reader, now: float) -> None:
        since, unread = self._blocked[reader]
        backlog = reader.backlog()
        if backlog < unread:
            self._blocked[reader] = (now, backlog)
        elif now - since >= self._send_timeout_seconds:
            seconds = f"{self._send_timeout_seconds:.0f} s"
            reader.close(
                CloseCode.TRY_AGAIN, f"nothing was read for {seconds}; reconnect with your cursor"
            )
