"""What feeds say, as changes: Atom, RSS, IIIF Change Discovery, and the topic of a hub.

Rules that hold here: nothing is fetched; an entry that leaves a feed is not gone, it is old.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import VALUES, Change, ChangeKind, Position, is_w3c_datetime
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify_bridge.markup import Element, read_markup
from rsnotify_client.address import canonical, joined
from rsnotify_client.moments import exact
from rsnotify_client.notification import position_of, read_notification

Entries = list[tuple[str, Change]]
NEXT = ("next", "prev-archive")
LAST = "IIIF Change Discovery demands `last`, from which older pages are read"
CHANGE_OF_ACTIVITY: dict[str, ChangeKind] = {
    "create": "created", "add": "created", "update": "updated", "delete": "deleted",
    "remove": "deleted",
}  # fmt: skip


class FeedPage(NamedTuple):
    """One page of changes, oldest first, and where older ones are."""

    entries: Entries
    begins: Position | None  # it has all that happened after this
    ends: Position | None
    older: str | None = None
    is_complete: bool = False  # it holds all that there is (RFC 5005)
    begins_anew: bool = False  # what happened before does not count
    is_paged: bool = False  # it is several pages as one


Skip = Callable[[str], object]
PageReader = Callable[[str, bytes, Skip], FeedPage]


def feed_page(url: str, data: bytes, skip: Skip) -> FeedPage:
    """Of Atom or RSS; raises `Rejected` for what is no feed."""
    root = read_markup(url, data).root
    if root.name == "feed":
        links = [link for link in root.children("link") if link.get("rel") in NEXT]
        found = [entry for each in root.children("entry", "deleted-entry")
                 if (entry := _atom(url, each, skip)) is not None]  # fmt: skip
        return _page(
            found[::-1], _first(url, links), is_complete=root.child("complete") is not None
        )
    channel = root.child("channel") if root.name == "rss" else None
    if channel is None and root.name not in ("rss", "RDF"):
        raise Rejected(f"{url} sent <{root.name}>, which is no feed")
    items = [*(channel.children("item") if channel is not None else ()), *root.children("item")]
    links = [link for link in (channel.children("link") if channel is not None else ())
             if link.get("rel") in NEXT]  # fmt: skip
    entries = [entry for each in items if (entry := _rss(url, each, skip)) is not None]
    return _page(entries[::-1], _first(url, links))


def notification_page(_url: str, data: bytes, _skip: Skip) -> FeedPage:
    """The latest notification, as a WebSub topic has it: nothing leads to older ones."""
    received = read_notification(data)
    entries = [(change.loc, change) for change in received.changes]
    return FeedPage(entries, received.from_, received.until)


def _page(
    entries: Entries, older: str | None, *, is_complete: bool = False, begins_anew: bool = False
) -> FeedPage:
    times = [at for _, each in entries if (at := position_of(each.lastmod)) is not None]
    begins, ends = _begin_of(times), max(times, default=None)
    return FeedPage(entries, begins, ends, older, is_complete, begins_anew)


def _begin_of(times: Sequence[Position]) -> Position | None:
    """The time of the oldest entry, of a page with the oldest first.

    What is pinned above the newest says nothing of how far back the page goes; that is where few
    are above it, for some feeds are in another order.

    >>> int(_begin_of([Position(7), Position(9), Position(2)]) or 0)
    7
    """
    if not times:
        return None
    pinned = times[::-1].index(max(times))
    return min(times[: len(times) - pinned] if 2 * pinned < len(times) else times)


def _first(url: str, links: list[Element]) -> str | None:
    return next((joined(url, href) for link in links if (href := link.get("href"))), None)


def _atom(url: str, entry: Element, skip: Skip) -> tuple[str, Change] | None:
    if entry.name == "deleted-entry":  # RFC 6721
        if not (ref := entry.get("ref")):
            skip(f"a deleted entry of {url} does not say which one it was")
            return None
        when = moment(entry.get("when"))
        return ref, Change("", "deleted", when, exact(when))
    links = [link for link in entry.children("link") if link.get("href")]
    chosen = next((link for link in links if link.get("rel") in (None, "alternate")), None)
    chosen = chosen or next((link for link in links if link.get("rel") == "enclosure"), None)
    id_ = entry.text_of("id")
    href = chosen and chosen.get("href")
    loc = joined(url, href) if href else id_
    if loc is None or not VALUES["loc"].fits(loc):
        skip(f"an entry of {url} has neither a link nor an id that is an address")
        return None
    when = moment(entry.text_of("updated", "published", "modified"))
    kind = chosen.get("type") if chosen is not None else None
    return id_ or loc, Change(loc, "created", when, exact(when), type=kind)


def _rss(url: str, item: Element, skip: Skip) -> tuple[str, Change] | None:
    link, guid = item.text_of("link"), item.text_of("guid")
    loc = joined(url, link) if link else guid
    if loc is None or not VALUES["loc"].fits(loc):
        skip(f"an item of {url} has neither a link nor a guid that is an address")
        return None
    when = moment(item.text_of("updated", "pubDate", "date", "modified"))
    return guid or loc, Change(loc, "created", when, exact(when))


def moment(text: str | None) -> str | None:
    """A time of RFC 3339 or RFC 822 as one of ours; None for what is neither.

    >>> moment("Fri, 20 Nov 2026 21:34:00 +0100"), moment("2026-11-20"), moment("soon")
    ('2026-11-20T20:34:00.000000Z', '2026-11-20', None)
    """
    if not text:
        return None
    text = text.strip()
    if is_w3c_datetime(text):
        return text
    seconds = date_seconds(text)
    try:
        return None if seconds is None else str(Position(int(seconds) * 1_000_000))
    except (ValueError, OverflowError):
        return None


# Activity Streams -------------------------------------------------------------------------------


def is_collection(content: Any) -> bool:
    kind = content.get("type") if isinstance(content, dict) else None
    return kind in ("OrderedCollection", "OrderedCollectionPage")


def has_others(content: Mapping[str, Any]) -> bool:
    """Whether a collection without items of its own has some on its pages."""
    said = content.get("totalItems")
    has_some = content.get("first") if said is None else said
    return content["type"] == "OrderedCollection" and bool(has_some)


def activity_page(url: str, data: bytes, skip: Skip) -> FeedPage:
    """A collection or one of its pages; raises `Rejected` for what is no OrderedCollection."""
    try:
        content = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Rejected(f"{url} sent no JSON: a collection of activities is") from None
    if not is_collection(content):
        raise Rejected(f"{url} sent no OrderedCollection of Activity Streams")
    items = content.get("orderedItems")
    found: Entries = []
    begins_anew = False
    for item in items if isinstance(items, list) else ():
        kind = str(item.get("type", "")).lower() if isinstance(item, dict) else ""
        if kind == "refresh":
            begins_anew = True
            found.clear()
        else:
            found += _activities(url, kind, item, skip)
    if not isinstance(items, list) and not content.get("last") and has_others(content):
        raise Rejected(f"{url} has activities, but does not name its last page: {LAST}")
    older = content.get("prev") if "prev" in content or found else content.get("last")
    return _page(found, _id(url, older), begins_anew=begins_anew)


def _activities(url: str, kind: str, item: Any, skip: Skip) -> Iterator[tuple[str, Change]]:
    if not isinstance(item, dict):
        skip(f"an activity of {url} is no object")
        return
    when = item.get("endTime")
    when = moment(when) if isinstance(when, str) else None
    if kind == "move":
        places: list[tuple[ChangeKind, str]] = [("deleted", "object"), ("created", "target")]
        for change, place in places:
            if (loc := _id(url, item.get(place))) is not None:
                yield canonical(loc), Change(loc, change, when, exact(when))
        return
    loc = _id(url, item.get("object"))
    if loc is None or kind not in CHANGE_OF_ACTIVITY:
        skip(f"an activity of {url}: {kind[:40]!r} of {str(loc)[:200]}")
        return
    yield canonical(loc), Change(loc, CHANGE_OF_ACTIVITY[kind], when, exact(when))


def _id(url: str, value: Any) -> str | None:
    """What names something: an address, or an object that has one."""
    named = value.get("id") if isinstance(value, dict) else value
    return joined(url, named) if isinstance(named, str) and named else None
