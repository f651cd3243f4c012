"""How much readers may send: nothing but pings, pongs and the end, so a flood is closed soon."""

from collections.abc import Callable
from time import monotonic

from rsnotify.http.input_turns import WEBSOCKET, BoundedInput, InputTurns, ReceivedCounts

READ_TURN_BYTES = 4 * 1024  # of all readers, in a turn of the event loop
LEAST_BYTES = 32  # a ping or a pong of most clients
BYTES_PER_SECOND = 16 * 1024  # four of the longest messages
FRAMES_PER_SECOND = 100  # pings of a minute and more, if the hub could read none of them meanwhile
SECOND = 1.0


class ReaderInput(InputTurns):
    """Counts for all readers of a process; of those that send nothing, nothing is kept."""

    def __init__(
        self, received: ReceivedCounts | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(turn_bytes=READ_TURN_BYTES, least_bytes=LEAST_BYTES)
        self.received = ReceivedCounts() if received is None else received
        self._clock = clock
        self._second_ends = 0.0
        self._bytes: dict[BoundedInput, int] = {}  # in this second
        self._frames: dict[BoundedInput, int] = {}

    def takes_bytes(self, reader: BoundedInput, count: int) -> bool:
        """Count what a WebSocket has sent; false if it is more than it may send."""
        self.received.bytes[WEBSOCKET] += count
        now = self._clock()
        if now >= self._second_ends:
            self._second_ends = now + SECOND
            self._bytes = self._of_the_unread(self._bytes)
            self._frames = self._of_the_unread(self._frames)
        total = self._bytes[reader] = self._bytes.get(reader, 0) + count
        return total <= BYTES_PER_SECOND

    def takes_frames(self, reader: BoundedInput, count: int) -> bool:
        """The same for the frames in these bytes."""
        self.received.frames += count
        total = self._frames[reader] = self._frames.get(reader, 0) + count
        return total <= FRAMES_PER_SECOND

    def _of_the_unread(self, counts: dict[BoundedInput, int]) -> dict[BoundedInput, int]:
        """Of readers who have sent more than could be read yet: among many floods a second may be
        too short to read what each may send."""
        return {reader: n for reader, n in counts.items() if self.is_waiting(reader)}

    def forget(self, reader: BoundedInput) -> None:
        """It has gone."""
        self._bytes.pop(reader, None)
        self._frames.pop(reader, None)
