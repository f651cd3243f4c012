"""A change (`Change`, `Link`), its place in the journal (`Position`), and what its values may be.

A `Change` has exactly the fields of the publish format. A position is a whole number of
microseconds since 1970 UTC; as text it is the `datetime` of the specification.

Each value is judged alone, by one row of `VALUES`. Where the schema is narrower than the text of
the specification (`type`), the text decides.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args, get_origin
from urllib.parse import quote

import msgspec

MICROSECONDS = 1_000_000
MINUTE = 60 * MICROSECONDS
HOUR = 60 * MINUTE
DAY = 24 * HOUR

# With its zone, a time in the first or last hours of the calendar can lie outside it.
EARLIEST_SECOND = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
LATEST_SECOND = int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())

_FULL_DATETIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d)(:\d\d)?(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", re.ASCII
)


def render_datetime(microseconds: int) -> str:
    """`2026-11-20T21:34:00.123456Z`: always UTC, always six digits, so texts sort like numbers."""
    return f"{_second(microseconds // MICROSECONDS)}.{microseconds % MICROSECONDS:06d}Z"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]  # strftime has years of 3 digits


class Position(int):
    """A place in a journal: the `datetime` of the change that stands there.

    >>> Position.parse("2026-11-20T21:34:00.123456Z").stream_id
    '1795210440123-456'
    """

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a full W3C datetime with its zone; digits finer than a microsecond are cut."""
        found = _FULL_DATETIME.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not a full datetime such as 2026-11-20T21:34:00.123456Z")
        minute, second, fraction, zone = found.groups()
        moment = datetime.fromisoformat(minute + (second or ":00") + zone.replace("Z", "+00:00"))
        seconds = int(moment.timestamp())
        if not EARLIEST_SECOND <= seconds <= LATEST_SECOND:
            raise ValueError(f"{text!r} is outside the years 1 to 9999")
        return cls(seconds * MICROSECONDS + int(((fraction or "") + "000000")[:6]))

    @classmethod
    def parse_moment(cls, text: str) -> Self:
        """Read what people write: a full datetime, or a date alone, its first moment in UTC.

        >>> Position.parse_moment("2026-11-20"), Position.parse_moment("2026-11-20T02:00 02:00")
        (Position(2026-11-20T00:00:00.000000Z), Position(2026-11-20T00:00:00.000000Z))
        """
        text = _LOST_PLUS.sub("+", text)
        return cls.parse(f"{text}T00:00:00Z" if _DATE(text) else text)

    @property
    def stream_id(self) -> str:
        """The position as Redis numbers what is in a stream."""
        at = max(0, self)  # a stream id is never negative
        return f"{at // 1000}-{at % 1000}"

    __str__ = render_datetime

    def __repr__(self) -> str:
        return f"Position({render_datetime(self)})"


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One `rs:ln`: a resource that stands in relation `rel` to the one that changed."""

    rel: str
    href: str
    modified: str | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    pri: int | None = None
    path: str | None = None
    encoding: str | None = None
    profile: str | None = None


ChangeKind = Literal["created", "updated", "deleted"]
"""What can happen to a resource."""

if TYPE_CHECKING:
    _SaidKind = ChangeKind
else:
    _SaidKind = str  # of what others send, a rule of `VALUES` says more than a decoder would

Priority = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One `<url>` entry: the resource at `loc` was created, updated or deleted.

    `capability` and `index` belong to framework changes: what kind of document changed, and the
    index it resides under.

    This is the table of what may be said of a resource: a new attribute is a row here, and its rule
    one in `VALUES`. Readers and writers of every form go by it.
    """

    loc: str
    change: _SaidKind
    lastmod: str | None = None
    datetime: str | None = None
    hash: str | None = None
    length: int | None = None
    type: str | None = None
    encoding: str | None = None
    changefreq: str | None = None
    priority: Priority | None = None
    links: tuple[Link, ...] = ()
    capability: str | None = None
    index: str | None = None


ELEMENTS = ("loc", "lastmod", "changefreq", "priority")
"""What is an element of its own in an entry, in the order of the schema."""

ATTRIBUTES = tuple(
    name for name in Change.__struct_fields__ if name not in (*ELEMENTS, "links", "index")
)
"""What stands in its `rs:md`."""

OF_A_CHANGE = ("change", "datetime", "capability", "index")
"""What says how and when a resource changed; the others describe the resource."""

USUAL = ("loc", "change", "lastmod", "datetime", "hash", "length", "type")
"""What nearly every change has, and no more: it is judged and written sooner than the others."""

rare_fields = attrgetter(*(name for name in Change.__struct_fields__ if name not in USUAL))
NO_RARE_FIELDS = rare_fields(Change("", "created"))


# --- values --------------------------------------------------------------------------------------

CHANGE_TYPES: tuple[ChangeKind, ...] = get_args(ChangeKind)
CHANGE_FREQUENCIES = ("always", "hourly", "daily", "weekly", "monthly", "yearly", "never")

HASH_DIGITS = {
    "md5": 32,
    "sha-1": 40,
    "sha-224": 56,
    "sha-256": 64,
    "sha-384": 96,
    "sha-512": 128,
}
"""How many hexadecimal digits the digest of each algorithm has."""

_URI = re.compile(
    r"(?!(?:https?|wss?):(?!//[^/?#]))[A-Za-z][A-Za-z0-9+.-]*:"
    r"(?:[!#$&-;=?-\[\]_a-z~]++|%[0-9A-Fa-f]{2}"
    r"|[^\s\x00-\x20<>\"{}|\\^`%\x7f-\x9f\u200e\u200f\u202a-\u202e])++"  # RFC 3987, 2.2 and 4.1
).fullmatch
_ILLEGAL = re.compile(
    r"[\s\x00-\x20<>\"{}|\\^`\x7f-\x9f\u200e\u200f\u202a-\u202e]|%(?![0-9A-Fa-f]{2})"
).search
_PARTS = re.compile(r"(?:([^/?#]*//)([^/?#]*))?(.*)", re.DOTALL).fullmatch  # with a host or not
_ASCII = "%/:?#[]@!$&'()*+,;=~"
_RELATION = re.compile(r"[a-z][a-z0-9.-]*").fullmatch
_MONTH = re.compile(r"\d{4}(?:-(?:0[1-9]|1[0-2]))?", re.ASCII).fullmatch
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII).fullmatch
_LOST_PLUS = re.compile(r" (?=\d\d:\d\d$)", re.ASCII)  # in an address, `+` means a space
_RESTRICTED = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_PARAMETER = r"\s*;\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+=(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+|\"[^\"]*\")"
_MEDIA_TYPE = re.compile(rf"{_RESTRICTED}/{_RESTRICTED}(?:{_PARAMETER})*").fullmatch
_PATH = re.compile(r"/.*[^/]").fullmatch
_FRACTION = re.compile(r"0(?:\.\d+)?|1(?:\.0+)?", re.ASCII).fullmatch
_LENGTH = re.compile(r"\d{1,18}", re.ASCII).fullmatch
_PRI = re.compile(r"[1-9]\d{0,5}", re.ASCII).fullmatch
HEX_DIGEST = re.compile(
    "|".join(f"{algorithm}:[0-9A-Fa-f]{{{digits}}}" for algorithm, digits in HASH_DIGITS.items())
).fullmatch
_HEX = re.compile(r"[0-9A-Fa-f]+").fullmatch
_BASE64URL = re.compile(r"[0-9A-Za-z_-]+").fullmatch


class Value(msgspec.Struct, frozen=True):
    """A row: the check, the words for what is expected, and the clause that requires it."""

    fits: Callable[[str], object]
    wanted: str
    clause: str = "Core 7"


def is_datetime(text: str) -> bool:
    """A full date and time with its zone, which positions and intervals need."""
    try:
        Position.parse(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def is_w3c_datetime(text: str) -> bool:
    """Any granularity of W3C Datetime: a year, a month, a day, or a full date and time."""
    if _DATE(text):
        return is_datetime(f"{text}T00:00:00Z")
    return _MONTH(text) is not None or is_datetime(text)


def is_hash(text: str) -> bool:
    """One or more digests; each in hexadecimal, or in base64url as in Example 27 of the core."""
    if HEX_DIGEST(text):  # nearly always there is only one
        return True
    tokens = text.split()
    return bool(tokens) and all(map(_is_digest, tokens))


def _is_digest(token: str) -> bool:
    algorithm, _, digest = token.partition(":")
    digits = HASH_DIGITS.get(algorithm, 0)
    if _HEX(digest):
        return len(digest) == digits
    # The example is not exact about the length either: 43 characters for SHA-256, but once 44.
    shortest = -(-digits * 4 // 6)
    return _BASE64URL(digest) is not None and digits > 0 and 0 <= len(digest) - shortest <= 1


_DATETIME = Value(is_datetime, "a full W3C Datetime such as 2026-11-20T21:34:00Z")

NUMBERS = ("length", "pri", "priority")

VALUES: Mapping[str, Value] = {
    "loc": Value(_URI, "an absolute URI such as http://example.com/res1"),
    "lastmod": Value(is_w3c_datetime, "a W3C Datetime such as 2026-11-20T21:34:00Z"),
    "changefreq": Value(CHANGE_FREQUENCIES.__contains__, f"one of {', '.join(CHANGE_FREQUENCIES)}"),
    "priority": Value(_FRACTION, "a number from 0.0 to 1.0", "Sitemap protocol"),
    "at": _DATETIME,
    "completed": _DATETIME,
    "datetime": _DATETIME,
    "from": _DATETIME,
    "until": _DATETIME,
    "modified": _DATETIME,
    "change": Value(CHANGE_TYPES.__contains__, f"one of {', '.join(CHANGE_TYPES)}"),
    "hash": Value(is_hash, "digests such as md5:HEX or sha-256:HEX, with white space between"),
    "length": Value(_LENGTH, "a number of bytes, zero or more, of at most 18 digits"),
    "type": Value(_MEDIA_TYPE, "a media type such as application/pdf"),
    "path": Value(_PATH, "a path from the root of the package: /first, but no slash at the end"),
    "rel": Value(lambda rel: _RELATION(rel) or _URI(rel), "a registered relation type, or a URI"),
    "href": Value(_URI, "an absolute URI such as http://example.com/res1"),
    "pri": Value(_PRI, "a whole number from 1 to 999999"),
}


def problem(name: str, value: str) -> str | None:
    """What is wrong with the value of this name, in words; None if nothing is."""
    row = VALUES.get(name)
    if row is None or row.fits(value):
        return None
    shown = value if name in NUMBERS and value.strip("-").isdecimal() else repr(value[:80])
    return f"{name} is {shown[:80]}: it must be {row.wanted}{_to_write(name, value)}"


def _to_write(name: str, value: str) -> str:
    """Which character of an address must be written otherwise, and how."""
    found = _ILLEGAL(value) if name in ("loc", "href") else None
    if found is None:
        return ""
    written = quote(found[0], safe="", errors="replace")
    return f"; write {found[0]!r}, its character {found.start() + 1}, as {written}"


def not_ascii(loc: str) -> str:
    """What is wrong with such a one: Sitemaps want ASCII, and readers of lists rely on it."""
    at = next(at for at, character in enumerate(loc) if not character.isascii())
    encoded = as_ascii(loc)
    return (
        f"loc has {loc[at]!r} as its character {at + 1}, and addresses in Sitemaps are ASCII: "
        f"publish {encoded[:200]!r}"
    )


def as_ascii(loc: str) -> str:
    """The same address in ASCII: RFC 3987, 3.1."""
    found = _PARTS(loc)
    assert found is not None  # noqa: S101 - it fits any text
    scheme, host, rest = found.groups(default="")
    try:
        host = host.encode("idna").decode()
    except UnicodeError:
        host = quote(host, safe=_ASCII, errors="replace")
    return scheme + host + quote(rest, safe=_ASCII, errors="replace")


# What a body in JSON has ------------------------------------------------------------------------

_UNKNOWN = re.compile(r".*unknown field `([^`]*)`", re.DOTALL)
_NO_VALUE = re.compile(r"Invalid enum value .* - at `\$\.(\w+).*", re.DOTALL)


MEANT = {
    **dict.fromkeys(("url", "uri", "href", "location", "id", "identifier"), "loc"),
    **dict.fromkeys(("event", "action", "operation", "kind"), "change"),
    **dict.fromkeys(("modified", "last_modified", "updated", "date"), "lastmod"),
    **dict.fromkeys(("digest", "checksum", "md5", "sha256"), "hash"),
    **dict.fromkeys(("size", "bytes", "content_length"), "length"),
    **dict.fromkeys(("mime", "mimetype", "mime_type", "media_type", "content_type"), "type"),
}
"""What others call the fields of a change."""


def misfit(error: Exception, type_: type[msgspec.Struct]) -> str:
    """What does not fit this type, and what would: the fields or values that there are."""
    text = str(error)
    types = {each.encode_name: each.type for each in msgspec.structs.fields(type_)}
    if found := _UNKNOWN.fullmatch(text):
        near = [MEANT[found[1]]] if MEANT.get(found[1]) in types else []
        near = near or get_close_matches(found[1], types, n=1)
        return (
            f"{text}: did you mean {near[0]}?" if near else f"{text}: known are {', '.join(types)}"
        )
    if found := _NO_VALUE.fullmatch(text):
        return f"{text}: it must be one of {', '.join(_literals(types[found[1]]))}"
    return text


def _literals(type_: Any) -> Iterator[str]:
    """The words that a value of this type, or one of its members, may be."""
    if get_origin(type_) is Literal:
        yield from get_args(type_)
    else:
        for each in get_args(type_):
            yield from _literals(each)
