"""Lists of resources for harvesters: what stands in one, and where its pages end.

A resource stands in a list as it is now, and where it changed last. A list of changes passes over
those that another change of the same resource follows. Nothing here reads anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rsnotify.documents.documents import kept_position, render_resources
from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.notification import END_OF_ENTRY, Row

PAGE_RECORDS = 500
PAGE_BYTES = 512 * 1024  # of what is known of them, after which a page ends

_LOC = b"<url><loc>"
_DELETED = b'<rs:md change="deleted"'


class Listing(NamedTuple):
    """What a list has: the same on each of its pages."""

    from_: Position | None
    until: Position | None
    begun: Position  # the newest change when it was begun
    of_state: bool  # whether it begins with the resources as they are, not with changes
    resources: int = 0  # of the set, when it was begun
    tombstones: Position | None = None  # since when the state says what has ended, if it does

    @property
    def size(self) -> int | None:
        """How many resources it has at least, if that is known."""
        is_whole = self.of_state and self.from_ is None and self.until is None
        return self.resources if is_whole else None

    def has(self, changed: Position) -> bool:
        """Whether what changed then is asked for."""
        is_after = self.from_ is None or self.from_ <= changed
        return is_after and (self.until is None or changed <= self.until)

    def takes_from_state(self, changed: Position) -> bool:
        """Whether what changed then is asked for, and does not come with the changes that follow
        the state."""
        return changed <= self.begun and self.has(changed)


class ListPlace(NamedTuple):
    """Where a list goes on: behind a resource of the state, and then behind a change."""

    shard: int | None  # of the state; None once all of it has been listed
    loc: str  # the last resource that was listed of the shard
    change: Position


class Replaced(NamedTuple):
    """The loads that took the place of the state and published nothing: when the last one did, or
    0; and of each when it did, by the position that the resources have which it brought."""

    at: Position
    moved: Mapping[Position, Position]

    def changed(self, position: Position) -> Position:
        """When a resource changed that stands at this position in the state."""
        return self.moved.get(position, position)


class Found(NamedTuple):
    """A resource of a list: when it changed, and its entry in a Resource List."""

    loc: bytes  # escaped
    changed: Position
    entry: bytes | None  # None if it was deleted


class Passed(NamedTuple):
    """A resource of a list, and where the list goes on behind it."""

    found: Found
    place: ListPlace


class HarvestPage(NamedTuple):
    """A page of a list; without `next` it is the last one."""

    found: Sequence[Found]
    next: ListPlace | None


def found_of(kept: Mapping[bytes, bytes], replaced: Replaced) -> dict[bytes, Found]:
    """The resources of which this is kept, by their escaped locs."""
    there = [(loc, value) for loc, value in kept.items() if not is_tombstone(value)]
    rendered = [entry + END_OF_ENTRY for entry in render_resources(there).split(END_OF_ENTRY)[:-1]]
    entries = dict(zip((loc for loc, _ in there), rendered, strict=True))
    return {
        loc: Found(loc, replaced.changed(stands_at(value)), entries.get(loc))
        for loc, value in kept.items()
    }


def is_tombstone(value: bytes) -> bool:
    """Whether this is kept of a resource that has ended: nothing but the position where it did."""
    return value.isdigit()


def stands_at(value: bytes) -> Position:
    """The position of the last change of a resource of which this is kept."""
    return Position(int(value)) if is_tombstone(value) else kept_position(value)


def listed_at(
    row: Row, found: Found | None, listing: Listing, state_change: Position | None
) -> Found | None:
    """What a list has for a change in the journal: its resource as it is now, if no other change
    follows. `state_change` is where the resource stands in the state.

    What the state has told already is not told again.
    """
    at, fragment = row
    loc = loc_of(fragment)
    is_end = _DELETED in fragment
    if found is None or state_change is None:
        return Found(loc, at, None) if is_end else None
    if is_end is not (found.entry is None) or state_change > at:
        return None
    if listing.of_state and at <= listing.begun:
        return None
    return found._replace(changed=max(at, found.changed))


def loc_of(fragment: bytes) -> bytes:
    """The escaped loc of a change in the journal."""
    return fragment[len(_LOC) : fragment.index(b"<", len(_LOC))]


def page_of(
    passed: Iterable[Passed], end: ListPlace | None, records: int = PAGE_RECORDS
) -> HarvestPage:
    """As many of these as a page may have; of several of one resource the last counts. `end` is
    where the list goes on behind all of them."""
    last_of_each: dict[bytes, Passed] = {}
    for each in passed:
        last_of_each.pop(each.found.loc, None)
        last_of_each[each.found.loc] = each
    chosen: list[Passed] = []
    size = 0
    for each in last_of_each.values():
        if len(chosen) == records or size > PAGE_BYTES:
            return HarvestPage([one.found for one in chosen], chosen[-1].place)
        chosen.append(each)
        size += size_of(each.found)
    return HarvestPage([one.found for one in chosen], end)


def size_of(found: Found) -> int:
    """Bytes of what is known of it."""
    return len(found.loc) + len(found.entry or b"")
