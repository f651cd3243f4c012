"""Which changes of a set a reader wants, and whether one is among them.

A filter is the same on every way out: parameters of an address, each of which may be repeated. A
change passes if, of each parameter that is given, one value fits. Nobody is kept from learning that
something ended or left: a deletion passes whatever `change` says, and what no longer has a type or
a collection passes for those who ask for the former ones. What these were stands in the change
itself, as a link that the append has added (`FORMER`).

Values are compared with a change as it is written, so nothing is parsed that no value asks for.
Nothing here knows who reads, or from where on.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, Self
from urllib.parse import urlencode

from rsnotify.errors import CloseCode, Rejected
from rsnotify.resourcesync.change import CHANGE_TYPES, as_ascii
from rsnotify.resourcesync.notification import END_OF_ENTRY, Notification, part_of
from rsnotify.resourcesync.xml_writer import escape

FILTER = ("prefix", "type", "change", "collection")
"""The parameters of a filter."""

FILTER_VALUES = 100  # of a filter: each change is held against them
VALUE_CHARACTERS = 2_000
ENTRY_BYTES = 400  # memory of a change that is taken apart, besides its XML

FORMER = "urn:rsnotify:former"
"""The relation of a link by which a change says what its resource was before: `type` is the former
media type, `href` a former collection, or the resource itself."""

_FORMER = FORMER.encode()
_LOC = b"<url><loc>"
_MD = re.compile(rb'<rs:md change="([a-z]+)"([^>]*)/>')
_LINK = re.compile(rb"<rs:ln( [^>]*)/>").findall
_ATTRIBUTES = re.compile(rb' ([a-z]+)="([^"]*)"').findall
_DATETIME = re.compile(rb' datetime="([^"]*)"').search
_TYPE = re.compile(rb' type="([^";]*)').search
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match
_NAME = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
MEDIA_RANGE = rf"^{_NAME}/(?:\*|{_NAME})$"
_RANGE = re.compile(MEDIA_RANGE[1:-1]).fullmatch


class Described(NamedTuple):
    """What a filter looks at in a change, or in what its resource was before."""

    type: bytes | None  # without its parameters, in small letters
    collections: tuple[bytes, ...]


class Filter:
    """What of each parameter is wanted. Two that mean the same are equal.

    `since`: changes after this position say what their resources were, where that was something
    else. Of earlier ones it is not known, so an update passes that may have been something else.
    """

    def __init__(
        self,
        prefix: Iterable[str] = (),
        type: Iterable[str] = (),  # noqa: A002 - as the parameter is called
        change: Iterable[str] = (),
        collection: Iterable[str] = (),
        *,
        since: str = "",
    ) -> None:
        given = zip(FILTER, (prefix, type, change, collection), strict=True)
        self.pairs = sorted({(name, value) for name, values in given for value in values})
        self._since = since
        self.key = f"{self} of {since}" if since else str(self)
        self._derived = f"filtered by {self.key}"
        self._prefixes = tuple(_LOC + each for each in self._written("prefix"))
        self._kinds = frozenset(self._written("change"))
        self._types = frozenset(self._written("type"))
        self._ranges = tuple(each[:-1] for each in self._types if each.endswith(b"/*"))
        self._collections = frozenset(self._written("collection"))
        self.looks_back = bool(self._types or self._collections)
        """Whether it asks for what a resource can lose, so that what it was before counts."""

    def _written(self, name: str) -> Iterator[bytes]:
        """The values of a parameter as they stand in a change."""
        return (escape(value).encode() for each, value in self.pairs if each == name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __str__(self) -> str:
        """The canonical query."""
        return urlencode(self.pairs, safe=":/*")

    def known_since(self, since: str) -> Self:
        """The same filter for a set whose changes say what their resources were since then."""
        if since == self._since:
            return self
        given = ([value for name, value in self.pairs if name == each] for each in FILTER)
        return type(self)(*given, since=since)

    def __repr__(self) -> str:
        return f"<Filter {self.key}>"

    def wants(self, media_type: str | None, collections: Iterable[str]) -> bool:
        """Whether a resource of this type, in these collections, is among those asked for."""
        kind = None if media_type is None else _essence(media_type.encode())
        return self._fits(Described(kind, tuple(escape(each).encode() for each in collections)))

    def matches(self, entry: bytes) -> bool:
        """Whether a change passes: its `<url>` element, which may lack its end."""
        return bool(self._chosen(Entries([entry]), may_be_old=True))

    def choose(self, entries: bytes) -> list[bytes]:
        """Those of these `<url>` elements that pass."""
        return self._chosen(Entries.of(entries), may_be_old=True)

    def pick(self, found: Notification) -> Notification | None:
        """What passes of a notification, for the same interval; None if nothing does. It is chosen
        once for all who want the same."""
        return found.derived(self._derived, self._part) or None

    def _part(self, found: Notification) -> Notification | Literal[b""]:
        """What is kept for all; empty bytes take the least."""
        may_be_old = self._since > str(found.from_)
        chosen = self._chosen(found.derived("entries", _entries_of), may_be_old=may_be_old)
        return part_of(found, b"".join(chosen), len(chosen)) if chosen else b""

    def _chosen(self, entries: "Entries", *, may_be_old: bool) -> list[bytes]:
        """`may_be_old`: whether some may be from before changes said what resources were."""
        prefixes = self._prefixes
        if not self._kinds and not self.looks_back:
            return [each for each in entries.xml if each.startswith(prefixes)]
        known: dict[Said, bool] = {}  # of most changes the same is said
        chosen = []
        for each, said in zip(entries.xml, entries.said, strict=True):
            if prefixes and not each.startswith(prefixes):
                continue
            passes = known.get(said)
            if passes is None:
                passes = known[said] = self._passes(said)
            if passes or (may_be_old and self._may_have_been_another(each, said)):
                chosen.append(each)
        return chosen

    def _passes(self, said: "Said") -> bool:
        """Whether it does by what it says."""
        kind, now, before = said
        is_wanted = not self._kinds or kind in self._kinds
        if not self.looks_back:
            return is_wanted or kind == b"deleted"
        if kind == b"deleted":
            return before is None or self._fits(before)
        return (is_wanted and self._fits(now)) or (before is not None and self._fits(before))

    def _may_have_been_another(self, entry: bytes, said: "Said") -> bool:
        """Whether nobody knows what its resource was, before changes said so."""
        if not self.looks_back or said.kind != b"updated" or said.before is not None:
            return False
        changed = _DATETIME(entry)
        return changed is not None and changed[1].decode() <= self._since

    def _fits(self, resource: Described) -> bool:
        return self._has_type(resource.type) and (
            not self._collections or not self._collections.isdisjoint(resource.collections)
        )

    def _has_type(self, media_type: bytes | None) -> bool:
        if not self._types:
            return True
        if media_type is None:
            return False
        return media_type in self._types or media_type.startswith(self._ranges)


class Said(NamedTuple):
    """What a filter looks at in a change, besides where its resource is."""

    kind: bytes
    now: Described
    before: Described | None  # None if the change does not say it


class Entries:
    """The `<url>` elements of a notification, taken apart once for all filters."""

    def __init__(self, xml: list[bytes]) -> None:
        self.xml = xml

    @classmethod
    def of(cls, entries: bytes) -> Self:
        return cls([each + END_OF_ENTRY for each in entries.split(END_OF_ENTRY)[:-1]])

    @property
    def size(self) -> int:
        """Bytes of memory, with what is said in them."""
        return sum(map(len, self.xml)) + ENTRY_BYTES * len(self.xml)

    @cached_property
    def said(self) -> list[Said]:
        return [_said_in(each) for each in self.xml]


def _entries_of(found: Notification) -> Entries:
    return Entries.of(found.payload[found.entries])


def _said_in(entry: bytes) -> Said:
    md = _MD.search(entry)
    if md is None:  # no change is written so
        return Said(b"", Described(None, ()), None)
    return Said(md[1], *described(md[2], entry))


def described(attributes: bytes, entry: bytes) -> tuple[Described, Described | None]:
    """What a change says of its resource, and what that was before, if the change says so."""
    media_type = _media_type(attributes)
    if b"<rs:ln" not in entry:
        return Described(media_type, ()), None
    links = [dict(_ATTRIBUTES(link)) for link in _LINK(entry)]
    former = [link for link in links if link.get(b"rel") == _FORMER]
    collections = _targets(link for link in links if link.get(b"rel", b"").lower() == b"collection")
    now = Described(media_type, collections)
    if not former:
        return now, None
    types = (link[b"type"] for link in former if b"type" in link)
    loc = entry[len(_LOC) : entry.find(b"</loc>")]
    targets = tuple(each for each in _targets(former) if each != loc)
    return now, Described(next(map(_essence, types), None), targets)


def _targets(links: Iterable[dict[bytes, bytes]]) -> tuple[bytes, ...]:
    return tuple(link.get(b"href", b"") for link in links)


def _media_type(attributes: bytes) -> bytes | None:
    found = _TYPE(attributes)
    return None if found is None else _essence(found[1])


def _essence(media_type: bytes) -> bytes:
    return media_type.partition(b";")[0].strip().lower()


# --- parsing -------------------------------------------------------------------------------------


def parse_filter(query: Mapping[str, Sequence[str]]) -> Filter | None:
    """The filter in the parameters of an address; None without one.

    >>> str(parse_filter({"change": ["deleted", "created", "deleted"], "prefix": ["http://a/"]}))
    'change=created&change=deleted&prefix=http://a/'
    """
    given = {name: query[name] for name in FILTER if query.get(name)}
    if not given:
        return None
    if (number := sum(map(len, given.values()))) > FILTER_VALUES:
        raise _refused(f"a filter of {number} values: at most {FILTER_VALUES} are compared")
    checked = {name: [_checked(name, each) for each in values] for name, values in given.items()}
    return Filter(*(checked.get(name, ()) for name in FILTER))


def _checked(name: str, value: str) -> str:
    if not value:
        raise _refused(f"{name} is empty: leave it out, or name what you want by it")
    if len(value) > VALUE_CHARACTERS:
        raise _refused(f"{name} has {len(value)} characters: at most {VALUE_CHARACTERS} are read")
    return _CHECKS[name](value)


def _prefix(value: str) -> str:
    if _SCHEME(value) is None:
        example = "http://example.com/" + value.lstrip("/")
        raise _refused(
            f"prefix is {value[:80]!r}: it must begin as the loc of a change does, with a scheme: "
            f"{example[:100]!r}"
        )
    return _address("prefix", value)


def _collection(value: str) -> str:
    if _SCHEME(value) is None:
        raise _refused(
            f"collection is {value[:80]!r}: give the whole href of the link with "
            'rel="collection", such as http://example.com/papers'
        )
    return _address("collection", value)


def _address(name: str, value: str) -> str:
    written = as_ascii(value) if name == "prefix" else value
    if written != value:
        raise _refused(
            f"{name} is {value[:80]!r}: write it as in the loc of changes, {written[:200]!r}"
        )
    try:
        escape(value)
    except Rejected:
        raise _refused(f"{name} is {value[:80]!r}: no address has such a character") from None
    return value


def _type(value: str) -> str:
    if _RANGE(value) is None:
        hint = ": leave its parameters out" if ";" in value else ", or image/* for all of a kind"
        raise _refused(
            f"type is {value[:80]!r}: it must be a media type such as application/pdf{hint}"
        )
    return value.lower()


def _change(value: str) -> str:
    if value not in CHANGE_TYPES:
        raise _refused(f"change is {value[:80]!r}: it must be one of {', '.join(CHANGE_TYPES)}")
    return value


_CHECKS = {"prefix": _prefix, "type": _type, "change": _change, "collection": _collection}


def _refused(detail: str) -> Rejected:
    return Rejected(detail, close_code=CloseCode.BAD_REQUEST)
