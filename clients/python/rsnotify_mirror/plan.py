"""What the Source has and what the copy has, compared; and the options of a copy. Pure.

Rules that hold here: the same digest means the same content, whatever else differs; so does the
same time, if the copy was fetched after its end (the time may be only a day). Where a Source says
too little to compare, the server is asked with a condition.
"""

import random
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path

import msgspec

from rsnotify.errors import TryAgain
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.delete_guard import MAX_DELETE, wrong_percent
from rsnotify.resourcesync.retry import Backoff
from rsnotify.resourcesync.tables import PATCH
from rsnotify_client.address import canonical
from rsnotify_client.changelists import POLL_SECONDS
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.network import Network
from rsnotify_client.notification import ChannelTransport, position_of
from rsnotify_client.resource import SourceResource, digests
from rsnotify_mirror.paths import Map
from rsnotify_mirror.selection import Selection

KEPT_LINKS = ("canonical", "alternate", "describedby", "describes", "collection", "via", "memento")
DAY_SECONDS = 86_400
ZONE_SECONDS = 12 * 3_600  # by how much a day ends later in the last of the time zones
_SECONDS = re.compile(r"T\d\d:\d\d:\d\d")
_FRACTION = re.compile(r"T\d\d:\d\d:\d\d[.,]\d")
JSON_PATCH = ("application/json-patch", "application/json-patch+json")
# The last is what the specification names; RFC 5261 has registered it for errors of patches.
XML_PATCH = (
    "application/xml-patch",
    "application/xml-patch+xml",
    "application/patch-ops-error+xml",
)


class Have(msgspec.Struct, frozen=True, omit_defaults=True):
    """A resource as it is in the copy."""

    lastmod: str | None = None
    length: int | None = None
    hash: str | None = None
    etag: str | None = None
    modified: str | None = None
    asked: int | None = None  # when the server sent it or said that it has not changed, by its Date
    hook_failed: bool = False  # call the hook again; do not fetch


def wanted_by(
    change: Change, position: Position | None = None, *, is_live: bool = False
) -> SourceResource:
    """The resource that a change, or an entry of a Resource List, describes."""
    links = change.links and tuple(link for link in change.links if link.href)
    return SourceResource(
        change.loc,
        change.change or "updated",
        change.lastmod,
        change.length,
        change.hash,
        change.type,
        links,
        None if position is None else int(position),
        is_live,
    )


def newest(wanted: Iterable[SourceResource]) -> list[SourceResource]:
    """The last change to each resource, in whatever way it is written: the earlier ones do not
    count."""
    return list({canonical(each.loc): each for each in wanted}.values())


def is_current(wanted: SourceResource, have: Have | None) -> bool:
    """Whether the copy is known to have what the Source has."""
    return compared(wanted, have) is True


def compared(wanted: SourceResource, have: Have | None) -> bool | None:
    """Whether the copy has what the Source has; None where only the server can say."""
    if have is None:
        return False
    theirs, ours = digests(wanted.hash), digests(have.hash)
    if shared := theirs.keys() & ours.keys():
        return all(theirs[name] == ours[name] for name in shared)
    if wanted.length not in (None, have.length):
        return False
    if wanted.lastmod is None or have.lastmod is None:
        return None
    if wanted.lastmod != have.lastmod:
        return False
    is_same = is_over(wanted.lastmod, have) and not has_another_digest(wanted, have)
    return True if is_same else None


def is_over(lastmod: str | None, have: Have) -> bool:
    """Whether a time had passed when the server was asked, so that nothing else can be of it."""
    if lastmod is None or lastmod != have.lastmod:
        return False
    ends = may_change_until(lastmod)
    return ends is None or (have.asked is not None and have.asked >= ends)


def has_another_digest(wanted: SourceResource, have: Have) -> bool:
    """Whether the two have digests of one kind that cannot be checked, and that differ.

    >>> has_another_digest(SourceResource("", hash="odd:1"), Have(hash="odd:2"))
    True
    """
    ours = _by_algorithm(have.hash)
    return any(ours.get(name, value) != value for name, value in _by_algorithm(wanted.hash).items())


def _by_algorithm(text: str | None) -> dict[str, str]:
    pairs = (each.partition(":") for each in (text or "").split())
    return {name.lower(): value for name, _, value in pairs}


def contradiction(wanted: SourceResource, have: Have | None) -> str | None:
    """What is wrong where a time says that nothing has changed, and a digest says the opposite."""
    if have is None or wanted.is_deleted or compared(wanted, have) is not None:
        return None
    if not has_another_digest(wanted, have) or not is_over(wanted.lastmod, have):
        return None
    return (
        f"{wanted.loc} has another digest ({(wanted.hash or '')[:80]}) and the time that it had: "
        "it is asked for, but not verified; give it its time, and a digest such as sha-256"
    )


@lru_cache(maxsize=1_000)
def may_change_until(lastmod: str) -> float | None:
    """Until when a resource may change again without another `lastmod`, in seconds since 1970.

    None if it is so exact that it cannot. A day may be one of any time zone.

    >>> may_change_until("1970-01-01"), may_change_until("1970-01-01T00:00Z")
    (129600.0, 60.0)
    """
    if "T" in lastmod and _FRACTION.search(lastmod):
        return None
    if (begins := position_of(lastmod)) is None:
        return inf
    seconds = begins / 1_000_000
    if "T" in lastmod:
        return seconds + (1 if _SECONDS.search(lastmod) else 60)
    return seconds + {4: 366, 7: 31}.get(len(lastmod), 1) * DAY_SECONDS + ZONE_SECONDS


def addresses(wanted: SourceResource) -> list[str]:
    """The addresses of the resource, the best first.

    Mirrors come in the order of their `pri`: before the resource's own address only if what they
    send can be verified, else behind it.
    """
    mirrors = [
        link
        for link in wanted.links
        if link.rel == "duplicate" and link.href.startswith(("http://", "https://"))
    ]
    if not mirrors:
        return [wanted.loc]
    ordered = [link.href for link in sorted(mirrors, key=lambda link: link.pri or 999_999)]
    own_first = not digests(wanted.hash)
    found = [wanted.loc, *ordered] if own_first else [*ordered, wanted.loc]
    return list(dict.fromkeys(found))


def cheaper_patch(wanted: SourceResource, have: Have | None) -> Link | None:
    """A patch that is shorter than the resource and whose result can be verified."""
    if have is None or not digests(wanted.hash):
        return None
    for link in wanted.links:
        is_known = media_type(link.type) in (*JSON_PATCH, *XML_PATCH)
        if link.rel == PATCH and is_known and (link.length or 0) < (wanted.length or 1 << 60):
            return link
    return None


def media_type(text: str | None) -> str:
    """The media type without its parameters.

    >>> media_type("Text/HTML; charset=utf-8")
    'text/html'
    """
    return (text or "").partition(";")[0].strip().lower()


def kept_links(links: Sequence[Link]) -> list[Link]:
    """The links to related resources that are kept, for those who use the copy."""
    return [link for link in links if link.rel in KEPT_LINKS]


JOBS = 16
PER_HOST = 8
FIRST_SECONDS = 0.2  # until what failed is tried again for the first time
CERTAIN = 0.5  # of a wait; the rest is chance, for others mirror the same Source
LIST_BACKOFF = Backoff(0.5, 30.0, CERTAIN)  # until a list, or a package of a dump, is read again
SOURCE_BACKOFF = Backoff(10.0, 300.0, CERTAIN)  # until a Source is followed again


def pause_after(error: TryAgain, attempt: int, backoff: Backoff = LIST_BACKOFF) -> float:
    """How long to leave a Source alone that could not answer."""
    return backoff.seconds(attempt, random.random(), error.retry_after_seconds)  # noqa: S311


RELIST_SECONDS = 3_600.0  # the Resource List is read again, if there is nothing to follow


LEAST_BANDWIDTH = 10_000


class Options(msgspec.Struct, frozen=True):
    """How a copy is kept."""

    selection: Selection = Selection()
    max_delete: float = MAX_DELETE  # percent of the copy that a list or a new selection may remove
    maps: tuple[Map, ...] = ()
    jobs: int = JOBS
    per_host: int = PER_HOST
    keep_deleted: Path | None = None
    keep_versions: Path | None = None
    versions_bytes: int | None = None  # of versions that were replaced or deleted
    versions_seconds: float | None = None  # since then
    warc: Path | None = None  # what is stored is appended there, too
    has_files: bool = True
    same_site: bool = False  # ask for nothing at other hosts
    transport: ChannelTransport | None = None  # of its channel; without one, whichever passes
    moved_from: str | None = None  # where the Source was until now, of which the copy was made
    poll_seconds: float = POLL_SECONDS
    relist_seconds: float = RELIST_SECONDS
    first_retry_seconds: float = FIRST_SECONDS
    network: Network | None = None  # without one, what the environment says
    keep_free: int = 0  # bytes of the disk
    max_size: int | None = None  # bytes of the copy
    max_file: int | None = None  # bytes of one resource
    bandwidth: float | None = None  # bytes a second of all that is fetched

    def __post_init__(self) -> None:
        for name in ("keep_free", "max_size", "max_file", "bandwidth"):
            least = LEAST_BANDWIDTH if name == "bandwidth" else 0
            if (given := getattr(self, name)) is not None and not given >= least:
                raise InvalidArgument(f"{name} is {given}: give {least:,} bytes at least")
        if (wrong := wrong_percent(self.max_delete)) is not None:
            raise InvalidArgument(wrong)
