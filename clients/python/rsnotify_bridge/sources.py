"""What every kind of Source has in common: an adapter, and what it yields.

Rules that hold here: what was not read to its end says so, and deletes nothing.
"""

from collections.abc import AsyncGenerator
from typing import NamedTuple

from rsnotify.resourcesync.change import Change
from rsnotify_client.address import without_tokens
from rsnotify_client.polite import PoliteWeb
from rsnotify_client.readers import Parts

SKIPPED_NAMED = 20
AGAIN_SECONDS = 86_400.0


class SourceGap(Exception):
    """The Source no longer says what followed the cursor: its whole state is to be compared."""

    def __init__(self, why: str, cursor: str | None = None) -> None:
        super().__init__(why)
        self.cursor = cursor  # from which on it says everything


class Piece(NamedTuple):
    """Something that was read: each resource with the Source's own key for it."""

    entries: list[tuple[str, Change]]
    part: int = 0
    cursor: str | None = None  # once all of this is dealt with


Pieces = AsyncGenerator[Piece, None]


class SourceAdapter:
    """One Source, read in its own way. What a reading had to leave out is in `skipped`."""

    kind = ""
    via = ""  # the Source's own address, for those that came from nowhere else
    has_changes = False
    is_live = False
    overlays = False  # whether changes are read on top of a state that may be older than they are
    trouble: str | None = None  # of a channel, while it is not connected
    is_partial = False  # whether a state is what is known of changes: the last word counts
    is_whole = True  # whether what a whole state leaves out is gone

    def __init__(self, web: PoliteWeb) -> None:
        self.web = web
        self.skipped: list[str] = []
        self.skipped_count = 0
        self.short: str | None = None  # what ended before it should, of the last reading
        self.remarks: list[str] = []  # for --show
        self.cursor: str | None = None  # after a whole state: where changes go on
        self.parts: Parts = {}
        self.unchanged: set[int] = set()  # parts that were not read again
        self.compare_seconds: float | None = None  # how often all is compared besides

    def skip(self, what: str) -> None:
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_NAMED:
            self.skipped.append(without_tokens(what))

    def begin(self) -> None:
        """A new reading."""
        self.skipped, self.skipped_count = [], 0

    def how(self) -> str:
        """How it is followed, for a person."""
        raise NotImplementedError

    def state(self) -> Pieces:
        """All that there is; `Unchanged` if it is what was read before."""
        raise NotImplementedError

    def changes(self, cursor: str | None) -> Pieces:
        """What happened after the cursor; `SourceGap` where that is not known."""
        raise NotImplementedError

    async def gone(self, keys: list[str]) -> list[str]:
        """Those of the keys which a whole state left out that are gone, for all that is known."""
        return keys

    def live(self, cursor: str | None) -> Pieces:
        """As `changes`, without an end."""
        raise NotImplementedError
