"""What was handed on already, and whether what comes next joins it. Pure: no network, no clock.

Rules that hold here: nothing is handed on twice and nothing is passed over, as far as the Source
tells. Several changes may have one position, so those at the cursor are remembered: all that come
while the Source's clock is behind the cursor, too.
"""

import msgspec

from rsnotify.resourcesync.change import Change, Position
from rsnotify_client.notification import Received, position_of

Signs = tuple[str | None, Position | None, Position | None]
"""What tells changes of one resource apart: the digest, and both times that the Source may say."""


class NotJoined(Exception):
    """A notification was lost on the way: the next one does not begin at the cursor."""


class Timeline:
    """A cursor that moves over a channel and over Change Lists."""

    def __init__(self, cursor: Position | None = None) -> None:
        self.cursor = cursor
        self._at_cursor: dict[tuple[str, str], set[Signs]] = {}

    def begin(self, cursor: Position) -> None:
        """Where the peer said that it begins.

        If that is after our cursor, nothing lies between: else it would have refused the cursor.
        """
        if self.cursor is None or cursor > self.cursor:
            self.cursor = cursor
            self._at_cursor.clear()

    def begin_after(self, received: Received) -> None:
        """Nothing of this is handed on, only what comes after it."""
        self.new_in(received)

    def joined(self, received: Received) -> Received | None:
        """What is new in a notification; `NotJoined` if something lies between."""
        if self.cursor is not None and received.joins and received.from_ > self.cursor:
            raise NotJoined(f"nothing came between {self.cursor} and {received.from_}")
        return self.new_in(received)

    def new_in(self, received: Received) -> Received | None:
        """What was not handed on yet; the cursor moves to its end."""
        pairs = list(zip(received.positions, received.changes, strict=True))
        new = [pair for pair in pairs if self._is_new(*pair)]
        has_moved = self._move(received.until, new)
        if not new and not has_moved:
            return None
        if len(new) == len(pairs):
            return received
        return msgspec.structs.replace(
            received,
            payload=b"",
            changes=tuple(change for _, change in new),
            positions=tuple(position for position, _ in new),
        )

    def _is_new(self, position: Position, change: Change) -> bool:
        if self.cursor is None or position > self.cursor:
            return True
        return position == self.cursor and not self._is_known(change)

    def _is_known(self, change: Change) -> bool:
        """A channel may say less of a change than a list does: a sign counts if both have it."""
        known, signs = self._at_cursor.get((change.loc, change.change), set()), _signs(change)
        return signs in known or any(_agree(signs, each) for each in known)

    def _move(self, until: Position, new: list[tuple[Position, Change]]) -> bool:
        """Whether the cursor is further than it was."""
        is_further = self.cursor is None or until > self.cursor
        if is_further:
            self.cursor = until
            self._at_cursor.clear()
        for position, change in new:
            if position == self.cursor:
                known = self._at_cursor.setdefault((change.loc, change.change), set())
                known.add(_signs(change))
        return is_further


def _signs(change: Change) -> Signs:
    return change.hash, position_of(change.datetime), position_of(change.lastmod)


def _agree(signs: Signs, others: Signs) -> bool:
    return all(
        None in (one, other) or one == other for one, other in zip(signs, others, strict=True)
    )
