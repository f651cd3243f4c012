"""What a bridge decides: is it news, may so much be deleted, where does it come from, when again.

Rules that hold here: nothing waits, and nothing is fetched; a resource is described in the Source's
own words or not at all.

A record of OAI-PMH that names no resource is reported, not guessed.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import MICROSECONDS, Change, Link
from rsnotify.resourcesync.delete_guard import FEW, too_many
from rsnotify.resourcesync.retry import Backoff
from rsnotify_bridge.oaipmh import ALL, OaiPage, OaiRecord, OaiRequest, Wanted, stamp_of
from rsnotify_client.address import canonical
from rsnotify_client.between import has_changed
from rsnotify_client.moments import CLOCK_SECONDS, ends_at, exact, is_ahead
from rsnotify_client.notification import position_of
from rsnotify_client.provenance import VIA, own_links, with_via

SLOWER, FASTER = 1.5, 0.5
RELEASE = "; if that is meant, let it through with --release"


class Intervals(NamedTuple):
    """How long a bridge waits between two looks, at least and at most."""

    least: float = 60.0
    most: float = 3_600.0


def next_interval(
    seconds: float, limits: Intervals, *, is_changed: bool = False, failures: int = 0
) -> float:
    """How long to wait after a look: shorter after a change, longer after none or a failure.

    >>> limits = Intervals(60, 500)
    >>> next_interval(400, limits, is_changed=True), next_interval(400, limits)
    (200.0, 500)
    """
    if failures:
        return Backoff(2 * limits.least, limits.most, certain=1.0).seconds(failures - 1, 0.0)
    factor = FASTER if is_changed else SLOWER
    return min(limits.most, max(limits.least, seconds * factor))


def spread(seconds: float, chance: float) -> float:
    """A wait, up to a tenth longer: never shorter, for the Source may have asked for it.

    >>> spread(60.0, 0.0), spread(60.0, 0.5)
    (60.0, 63.0)
    """
    return seconds * (1.0 + 0.1 * chance)


def held_back(deleted: int, known: int, max_delete: float) -> str | None:
    """Why so many deletions are not believed; None if they are."""
    refusal = too_many(deleted, known, max_delete, few=FEW)
    return refusal and refusal.partition(";")[0] + RELEASE


def is_same(loc: str, other: str) -> bool:
    """Whether two addresses are one, however they are written."""
    return loc == other or canonical(loc) == canonical(other)


def has_slipped(change: Change, began: float) -> bool:
    """Whether a reading has missed what was there when it began, as far as its `lastmod` says."""
    at = position_of(exact(change.lastmod))
    return change.change != "deleted" and (at is None or at < began * MICROSECONDS)


def is_news(old: Change, new: Change) -> bool:
    """Whether a description says something else of the resource than the one before.

    What only one of the two says is no difference: lists and Change Lists say different amounts.
    """
    if has_changed(old, new) or _later(old.lastmod, new.lastmod) != 0:
        return True
    pairs = ((old.length, new.length), (old.type, new.type), (old.encoding, new.encoding))
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        return True
    links = own_links(old), own_links(new)
    if all(links) and links[0] != links[1]:
        return True
    if old.hash and new.hash:
        return False
    if old.datetime is None and new.datetime is not None:  # a list, then its first change
        return not (old.lastmod and new.lastmod)
    return _later(old.datetime, new.datetime) > 0


def _later(before: str | None, after: str | None) -> int:
    """1: it is later, -1: it is earlier, 0: neither is known."""
    old, new = position_of(before), position_of(after)
    if old is None or new is None:
        return 0
    return (new > old) - (new < old)


def is_outdated(change: Change, known: Change | None, now: float) -> bool:
    """Whether what is known of the resource came after a change that a feed still has.

    A time that is yet to come proves nothing, and one in whole seconds may be any moment of its
    second.
    """
    if known is None:
        return False
    before, after = (each.datetime or each.lastmod for each in (change, known))
    old, new = position_of(before), position_of(after)
    if before is None or old is None or new is None:
        return False
    return new > ends_at(before, old) and not is_ahead(after, now)


def newest(descriptions: Iterable[Change]) -> Change | None:
    """Which of several Sources' descriptions of one resource counts; of equals the first."""
    best, at = None, -1
    for each in descriptions:
        when = max(0, position_of(each.lastmod) or position_of(each.datetime) or 0)
        if when > at:
            best, at = each, when
    return best


def change_between(
    before: Change | None, after: Change | None, others: Sequence[Change]
) -> Change | None:
    """What is to be published when one Source's description of a resource turns into another one.

    `others` is what other Sources say of it; `after` may be None: the Source has it no longer.
    """
    old = newest(filter(None, [*others, before]))
    new = newest(filter(None, [*others, after]))
    if new is None:
        return None if old is None else replace(old, change="deleted")
    if old is None:
        return replace(new, change="created")
    if old is new or not is_news(old, new):
        return None
    return replace(new, change="updated")


def with_entry(change: Change, entry: str) -> Change:
    """With a link to the Source's own entry, unless one says already where it came from."""
    return with_via(change, Link(VIA, entry, exact(change.lastmod)) if entry else None)


def is_from(change: Change, homes: Collection[str]) -> bool:
    """Whether it came from one of these Capability Lists: of the set that it would go to."""
    return any(link.rel == VIA and link.href in homes for link in change.links)


def clock_off(ahead_seconds: float | None) -> str | None:
    """What is wrong with a clock that is so far ahead of ours; None if nothing is.

    >>> clock_off(7_500.0), clock_off(-300.0)
    ("the Source's clock is 2 h 5 min ahead of ours", None)
    """
    if ahead_seconds is None or abs(ahead_seconds) <= CLOCK_SECONDS:
        return None
    hours, minutes = divmod(int(abs(ahead_seconds)) // 60, 60)
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    return f"the Source's clock is {hours} h {minutes} min {direction} ours"


def key_of(epoch: str, number: int, body: bytes) -> str:
    """The idempotency key of a batch: of the state that it was made from, and what it says."""
    digest = hashlib.blake2b(body, digest_size=12, key=epoch.encode()[:64]).hexdigest()
    return f"bridge-{number}-{digest}"


# --- which resource a record of OAI-PMH is -------------------------------------------------------

GROUP = "rsnotify.bridge.loc"
FIELDS = ("identifier", "local")
_FIELD = re.compile(r"\{(\+?)(\w+)\}")

LocFunction = Callable[[OaiRecord], str | None]


class LocRule(NamedTuple):
    """Which resource a record is: by itself, by an element, by a template, or by a function."""

    element: str | None = None
    template: str | None = None
    function: LocFunction | None = None

    @classmethod
    def of(cls, element: str | None, template: str | None, function: str | None) -> "LocRule":
        if sum(each is not None for each in (element, template, function)) > 1:
            raise InvalidSettings("give one of --loc-from, --loc and --loc-by")
        for _, name in _FIELD.findall(template or ""):
            if name not in FIELDS:
                raise InvalidSettings(f"--loc: {{{name}}} is not known: {', '.join(FIELDS)} are")
        if template is not None and not _FIELD.search(template):
            raise InvalidSettings("--loc: name a field such as {identifier} in it")
        return cls(element, template, None if function is None else _function(function))

    @property
    def wanted(self) -> Wanted:
        """What of a record's metadata is read."""
        return ALL if self.function is not None else self.element

    def loc(self, record: OaiRecord, address: str) -> str | None:
        """The resource of a record that itself has this address."""
        if self.function is not None:
            return self.function(record)
        if self.element is not None:
            values = record.fields.get(self.element, ())
            return next((each for each in values if re.match(r"https?://\S+$", each)), None)
        if self.template is None:
            return address
        local = record.identifier.rpartition(":")[2]
        given = {"identifier": record.identifier, "local": local}
        return _FIELD.sub(lambda m: _written(given[m[2]], keeps=bool(m[1])), self.template)


def _written(value: str, *, keeps: bool) -> str:
    """As RFC 6570 does it: {+name} keeps what has a meaning in addresses."""
    return quote(value, safe=":/?#[]@!$&'()*+,;=" if keeps else "")


def _function(name: str) -> LocFunction:
    for found in entry_points(group=GROUP, name=name):
        function: LocFunction = found.load()
        return function
    raise InvalidSettings(f"--loc-by {name}: no package has that entry point of {GROUP}")


def changes_of(
    page: OaiPage, request: OaiRequest, rule: LocRule, skip: Callable[[str], object]
) -> Iterator[tuple[str, Change]]:
    """Each record as what it says of its resource."""
    if page.nameless:
        skip(f"{page.nameless} records without an identifier")
    for record in page.records:
        stamp = stamp_of(record)
        if stamp is None and record.datestamp:
            skip(f"the datestamp {record.datestamp[:40]!r} of {record.identifier[:200]}")
        when = exact(stamp)
        address = request.record(record.identifier)
        via = (Link(VIA, address, when),)
        try:
            loc = rule.loc(record, address)
        except Exception as error:  # of somebody's own function
            skip(f"{record.identifier[:200]}: {type(error).__name__}: {error}")
            continue
        if record.is_deleted:
            yield record.identifier, Change(loc or "", "deleted", stamp, when, links=via)
        elif loc is None:
            skip(f"{record.identifier[:200]} names no resource: see --loc-from, --loc")
        else:
            yield record.identifier, Change(loc, "created", stamp, when, links=via)
