"""How much more a copy may take of its disk, and how fast it may come.

Rules that hold here: what is known to be too long is not asked for; what turns out to be is given
up as soon as that shows. What several large files need that are fetched at the same time is added
up before each is asked for, and the size of the copy is looked at again as each gets its place. A
copy with no room left ends its mirror, as a full disk does; one file too long for the room
that is left fails alone.
"""

import errno
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import NamedTuple

from rsnotify_client.threads import waited
from rsnotify_client.web import Refused
from rsnotify_mirror.plan import Options

PIECES_A_SECOND = 10
LEAST_PIECE_BYTES = 4_096
MAKE_ROOM = "make room"


class NoRoom(Refused):
    """A resource has more bytes than there is room for, or than is wanted of one."""


class LengthLimit(NamedTuple):
    """How long a file may be, why not longer, and what to do about that."""

    length: int
    why: str
    advice: str


class NothingFits(OSError):
    """Nothing more has room in the copy; `advice` is what to do."""

    def __init__(self, limit: LengthLimit) -> None:
        super().__init__(errno.ENOSPC, limit.why)
        self.advice = limit.advice


class RoomShare:
    """What is kept for one file that is being fetched."""

    def __init__(self, to_come: int, growth: int) -> None:
        self.to_come, self.growth = max(0, to_come), max(0, growth)

    def came(self, count: int) -> None:
        self.to_come = max(0, self.to_come - count)


class CopyRoom:
    """What the copy in a directory may still take; `held` is what it has."""

    def __init__(self, directory: Path, options: Options, held: int = 0) -> None:
        self._directory = directory
        self._keep_free, self._max_size = options.keep_free, options.max_size
        self._max_file, self._has_files = options.max_file, options.has_files
        self._held = held
        self._shares: list[RoomShare] = []

    def left(self) -> LengthLimit:
        """So many bytes, or less than nothing, if there are too many already."""
        return min(self._limits())

    def _limits(
        self, begun: int = 0, replaced: int = 0, *, shares: Sequence[RoomShare] | None = None
    ) -> Iterator[LengthLimit]:
        """Those of a file of which so much is there, and that takes the place of so much."""
        shares = self._shares if shares is None else shares
        free = shutil.disk_usage(self._directory).free - self._keep_free
        to_come = sum(each.to_come for each in shares)
        why, advice = "the disk has no more room", MAKE_ROOM
        if self._keep_free:
            why += f": {self._keep_free:,} bytes of it are kept free (--keep-free)"
            advice = f"{MAKE_ROOM} or give a smaller --keep-free"
        yield LengthLimit(free - to_come + begun, why, advice)
        if self._max_size is not None:
            grows = sum(each.growth for each in shares)
            left = self._max_size - self._held - grows + replaced
            yield LengthLimit(left, self._why_size(), "give a larger --max-size")

    def _why_size(self) -> str:
        return f"the copy may have {self._max_size:,} bytes (--max-size)"

    def admit(
        self, loc: str, length: int | None, *, begun: int = 0, replaced: int = 0, is_one: bool
    ) -> None:
        """Raise unless a file of this length fits, or one that is not empty if that is unknown.

        `is_one`: it is a resource, and no package of several.
        """
        if is_one and length is not None:
            self.check_file(loc, length)
        if not self._has_files:
            return
        limit = min(self._limits(begun, replaced))
        if (1 if length is None else length) <= limit.length or length == 0:
            return
        if limit.length <= 0:
            raise NothingFits(limit)
        raise NoRoom(
            f"{loc} has {length:,} bytes, and there is room for {limit.length:,}: {limit.why}"
        )

    def check_growing(self, loc: str, length: int, *, replaced: int = 0, is_one: bool) -> None:
        """The same of what has come; what others need is not looked at, as some of it is here."""
        if is_one:
            self.check_file(loc, length)
        if not self._has_files:
            return
        limit = min(self._limits(length, replaced, shares=()))
        if length > limit.length:
            raise NoRoom(f"{loc} has {length:,} bytes or more: {limit.why}")

    def check_stored(self, loc: str, before: int, now: int) -> None:
        """Raise if the copy were larger than it may be with this file in its place."""
        if (
            self._max_size is not None
            and now > before
            and self._held - before + now > self._max_size
        ):
            raise NoRoom(f"{loc} has {now:,} bytes: {self._why_size()}")

    def check_file(self, loc: str, length: int) -> None:
        """Raise if it is longer than one resource may be."""
        if self._max_file is not None and length > self._max_file:
            raise NoRoom(
                f"{loc} has {length:,} bytes or more, and --max-file allows {self._max_file:,}"
            )

    @contextmanager
    def kept_for(self, to_come: int, growth: int) -> Iterator[RoomShare]:
        """Keep as much for a file while it is fetched."""
        share = RoomShare(to_come, growth)
        self._shares = [*self._shares, share]
        try:
            yield share
        finally:
            self._shares = [each for each in self._shares if each is not share]

    @property
    def is_counted(self) -> bool:
        """Whether it matters how large the copy is."""
        return self._max_size is not None

    def stored(self, before: int, now: int) -> None:
        """A file of the copy has another length; 0 if it is not there."""
        self._held += now - before


class FetchPace:
    """So many bytes a second at most, of all that is fetched at the same time."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._free_at = 0.0
        self._lock = Lock()

    def piece_bytes(self, most: int) -> int:
        """How much to read at once, so that nobody waits for long."""
        if self._rate is None:
            return most
        return min(most, max(LEAST_PIECE_BYTES, int(self._rate / PIECES_A_SECOND)))

    def seconds_after(self, count: int) -> float:
        """How long to rest after as many bytes; others rest for them, too."""
        if self._rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            self._free_at = max(now, self._free_at) + count / self._rate
            return self._free_at - now

    def rest(self, count: int) -> None:
        """In a thread: rest that long, or until the wait is given up."""
        if (seconds := self.seconds_after(count)) > 0:
            waited(seconds)
