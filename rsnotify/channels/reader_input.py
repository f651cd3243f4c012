"""What readers send: counted, and bounded in each second.

A reader has nothing to say but pings, pongs and its end. What it sends beyond the limit is not
parsed, and soon not even read.
"""

from collections.abc import Callable
from time import monotonic

from rsnotify.channels.reader import Reader
from rsnotify.http.socket_input import WEBSOCKET, InputTurns, ReceivedCounts

TURN_BYTES = 4 * 1024  # of all readers, in a turn of the event loop
LEAST_BYTES = 128  # a pong
BYTES_PER_SECOND = 16 * 1024  # four of the longest messages
FRAMES_PER_SECOND = 100  # pings of a minute and more, if the hub could read none of them meanwhile
SECOND = 1.0


class ReaderInput:
    """Counts for all readers of a process; of those that send nothing, nothing is kept."""

    def __init__(
        self, received: ReceivedCounts | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.received = ReceivedCounts() if received is None else received
        self.turns = InputTurns(turn_bytes=TURN_BYTES, least_bytes=LEAST_BYTES)
        self._clock = clock
        self._second_ends = 0.0
        self._bytes: dict[Reader, int] = {}  # in this second
        self._frames: dict[Reader, int] = {}

    def takes_bytes(self, reader: Reader, count: int) -> bool:
        """Count what a WebSocket has sent; false if it is more than it may send."""
        self.received.bytes[WEBSOCKET] += count
        now = self._clock()
        if now >= self._second_ends:
            self._second_ends = now + SECOND
            self._bytes.clear()
            self._frames.clear()
        total = self._bytes[reader] = self._bytes.get(reader, 0) + count
        return total <= BYTES_PER_SECOND

    def takes_frames(self, reader: Reader, count: int) -> bool:
        """The same for the frames in these bytes."""
        self.received.frames += count
        total = self._frames[reader] = self._frames.get(reader, 0) + count
        return total <= FRAMES_PER_SECOND

    def forget(self, reader: Reader) -> None:
        """It has gone."""
        self._bytes.pop(reader, None)
        self._frames.pop(reader, None)
