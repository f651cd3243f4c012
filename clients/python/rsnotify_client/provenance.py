"""What is published again elsewhere: with a link to where it came from, as a hub takes it.

Rules that hold here: nothing waits, and nothing is fetched; a resource is described in the Source's
own words or not at all. A chain keeps the link to the first of its Sources, and that one only.
"""

from msgspec.structs import replace

from rsnotify.resourcesync.change import VALUES, Change, Link, as_ascii
from rsnotify.resourcesync.change_rules import faults_of

VIA = "via"


def own_links(change: Change) -> list[Link]:
    """The links of a change but those that say where it came from."""
    return [link for link in change.links if link.rel != VIA]


def with_via(change: Change, origin: Link | None) -> Change:
    """With a link to its origin, unless one says already where it came from."""
    vias = [link for link in change.links if link.rel == VIA]
    first = vias[0] if vias else origin
    if first is None or len(vias) == 1:
        return change
    return replace(change, links=(*own_links(change), first))


def publishable(change: Change) -> tuple[Change | None, list[str]]:
    """What a hub takes of it, and what it would refuse; None if that is the resource itself."""
    if not change.loc.isascii():
        change = replace(change, loc=as_ascii(change.loc))
    if change.datetime is not None and not VALUES["datetime"].fits(change.datetime):
        change = replace(change, datetime=None)  # of a coarse granularity; lastmod says it, too
    change = replace(change, capability=None, index=None)
    faults = faults_of(change, "change")
    if not faults:
        return change, []
    said = [f"{change.loc[:200]!r}: {message}" for _, message in faults[:3]]
    fields = {field.partition("[")[0].partition(".")[0] for field, _ in faults}
    if fields & {"loc", "change"}:
        return None, said
    empty = {name: () if name == "links" else None for name in fields}
    return replace(change, **empty), said
