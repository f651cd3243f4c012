"""What a single value of a document must look like: a URI, a datetime, a hash, a media type.

Each value is judged alone, by one row of `VALUES`. Where the schema is narrower than the text of
the specification (`type`), the text decides.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin
from urllib.parse import quote

import msgspec

from rsnotify.resourcesync.change import Position

CHANGE_TYPES = ("created", "updated", "deleted")
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
_RESTRICTED = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_PARAMETER = r"\s*;\s*[!#$%&'*+.^_`|~0-9A-Za-z-]+=(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+|\"[^\"]*\")"
_MEDIA_TYPE = re.compile(rf"{_RESTRICTED}/{_RESTRICTED}(?:{_PARAMETER})*").fullmatch
_PATH = re.compile(r"/.*[^/]").fullmatch
_FRACTION = re.compile(r"0(?:\.\d+)?|1(?:\.0+)?", re.ASCII).fullmatch
_LENGTH = re.compile(r"\d{1,18}", re.ASCII).fullmatch
_PRI = re.compile(r"[1-9]\d{0,5}", re.ASCII).fullmatch
_HEX_DIGEST = re.compile(
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
    if _HEX_DIGEST(text):  # nearly always there is only one
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


def not_ascii(loc: str) -> str | None:
    """Sitemaps want addresses in ASCII, and readers of lists rely on it; None if this one is."""
    if loc.isascii():
        return None
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


def misfit(error: Exception, type_: type[msgspec.Struct]) -> str:
    """What does not fit this type, and what would: the fields or values that there are."""
    text = str(error)
    types = {each.encode_name: each.type for each in msgspec.structs.fields(type_)}
    if found := _UNKNOWN.fullmatch(text):
        near = get_close_matches(found[1], types, n=1)
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
