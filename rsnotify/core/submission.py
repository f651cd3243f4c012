"""What a Source posts: a body becomes fragments, or every fault in it is named.

One fault refuses the whole body. Every length that a stranger controls has a cap. JSON, NDJSON and
XML mean the same changes.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple, TypeVar

import msgspec

from rsnotify.errors import Fault, Rejected
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.change_rules import FieldFault, faults_of, needs_normalising, normalised
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.xml_reader import change_of, parse_document
from rsnotify.resourcesync.xml_writer import foreign_of, render_fragment, strays

BODY_BYTES = 8 * 1024 * 1024  # the longest request must not keep Redis busy for long
MAX_CHANGES = (
    10_000  # Redis stores them in one atom, and is busy for a fifth of a second with so many
)
ENTRIES_BYTES = BODY_BYTES + 2 * 1024 * 1024  # written as entries, where `&` takes five bytes
FRAGMENT_BYTES = 32 * 1024  # a notification reads up to 1,000 at once: this bounds its memory
MAX_FAULTS = 100  # a body of 10,000 faults is answered with the first hundred
KEY = re.compile(r"[\x21-\x7e]{1,255}")

_PARTS = "post the changes in parts, each under a key of its own"

LOC_START = len(b"<url><loc>")  # where the escaped loc of every fragment begins

Foreign = Mapping[str, str]


class Fragment(NamedTuple):
    """One change as the journal stores it."""

    position: int  # the Source's own datetime in microseconds, or 0
    deleted: bool
    loc_length: int  # of the escaped loc, in bytes
    xml: bytes
    load: str = ""  # the load that found it: it counts unless the resource changed since


class Submission(NamedTuple):
    """Changes that are appended to the journal together, under one key."""

    fragments: Sequence[Fragment]
    key: str | None = None
    fingerprint: str = ""

    @property
    def size(self) -> int:
        return sum(len(fragment.xml) for fragment in self.fragments)

    def of_source_description(self) -> "Submission | None":
        """Its changes of the Source Description, which concern every set; None without any."""
        chosen = [each for each in self.fragments if b' capability="description"' in each.xml]
        return self._replace(fragments=chosen) if chosen else None


def read_submission(body: bytes, content_type: str, kind: Kind, key: str | None) -> Submission:
    """The body as a submission to a channel of this kind; `Rejected` with every fault in it."""
    if key is not None and KEY.fullmatch(key) is None:
        raise Rejected("an Idempotency-Key is 1 to 255 visible ASCII characters")
    if len(body) > BODY_BYTES:
        raise Rejected(f"the body exceeds {BODY_BYTES} bytes; {_PARTS}", status=413)
    changes = list(_reader_for(content_type)(body))
    if not changes:
        raise Rejected("the body holds no change")
    fingerprint = "" if key is None else hashlib.blake2b(body, digest_size=12).hexdigest()
    return Submission(judge(changes, kind), key, fingerprint)


def judge(changes: Iterable[tuple[Change, Foreign | None]], kind: Kind) -> list[Fragment]:
    """A fragment for each change, or `Rejected` with the faults of all."""
    fragments, faults, size = [], list[Fault](), 0
    for index, (change, foreign) in enumerate(changes):
        try:
            faults += _at(index, faults_of(change, kind))
            if not faults:
                fragments.append(fragment_of(change, foreign))
                size += len(fragments[-1].xml)
        except Rejected as unfit:
            faults.append(Fault(index=index, message=unfit.detail))
        if len(faults) >= MAX_FAULTS or size > ENTRIES_BYTES:
            break
    if size > ENTRIES_BYTES:
        raise Rejected(f"as entries the changes exceed {ENTRIES_BYTES} bytes; {_PARTS}", status=413)
    if faults:
        raise _refused(faults)
    return fragments


def fragment_of(change: Change, foreign: Foreign | None = None) -> Fragment:
    """The journal's form of a change without faults."""
    if needs_normalising(change):
        change = normalised(change)
    xml = render_fragment(change, foreign=foreign)
    if len(xml) > FRAGMENT_BYTES:
        raise Rejected(f"the change takes {len(xml)} bytes; at most {FRAGMENT_BYTES} are allowed")
    own = 0 if change.datetime is None else max(0, int(Position.parse(change.datetime)))
    return Fragment(own, change.change == "deleted", xml.index(b"</loc>") - LOC_START, xml)


def _at(index: int, found: Iterable[FieldFault]) -> Iterator[Fault]:
    for field, message in found:
        yield Fault(index=index, field=field, message=message)


def _refused(faults: list[Fault]) -> Rejected:
    first = faults[0]
    place = f"change {first['index']}" + (f", {first['field']}" if first.get("field") else "")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return Rejected(f"{place}: {first['message']}{more}", faults=faults[:MAX_FAULTS])


# --- the three formats -------------------------------------------------------------------------

_JSON: msgspec.json.Decoder[list[Change] | Change] = msgspec.json.Decoder(list[Change] | Change)
_JSON_CHANGE = msgspec.json.Decoder(Change)
_JSON_PARTS = msgspec.json.Decoder(list[msgspec.Raw])
_PLACE = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<field>[^`]*)`)?$", re.DOTALL)

Part = TypeVar("Part")

_Changes = Iterable[tuple[Change, Foreign | None]]


def _read_json(body: bytes) -> _Changes:
    try:
        changes = _decoded(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Rejected(f"the body is not JSON: {error}") from None
    return zip(_within_limit(changes if isinstance(changes, list) else [changes]), repeat(None))


def _within_limit(changes: Sequence[Part]) -> Sequence[Part]:
    if len(changes) > MAX_CHANGES:
        raise Rejected(
            f"the body holds {len(changes)} changes, more than {MAX_CHANGES}; {_PARTS}", status=413
        )
    return changes


def _decoded(body: bytes) -> list[Change] | Change:
    try:
        return _JSON.decode(body)
    except msgspec.ValidationError:  # only says what is wrong first
        return _each_decoded(_within_limit(_parts(body)))


def _parts(body: bytes) -> Sequence[bytes | msgspec.Raw]:
    return _JSON_PARTS.decode(body) if body.lstrip()[:1] == b"[" else [body]


def _read_ndjson(body: bytes) -> _Changes:
    lines = [line for line in body.splitlines() if line.strip()]
    return zip(_each_decoded(_within_limit(lines)), repeat(None))


def _each_decoded(parts: Sequence[bytes | msgspec.Raw]) -> list[Change]:
    """Decode change by change, so that each fault is named with its place."""
    changes, faults = [], list[Fault]()
    for index, part in enumerate(parts):
        try:
            changes.append(_JSON_CHANGE.decode(part))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            faults.append(_misfit(index, str(error)))
    if faults:
        raise _refused(faults)
    return changes


def _misfit(index: int, text: str) -> Fault:
    found = _PLACE.match(text)
    fault = Fault(index=index, message=found["message"] if found else text)
    if found and found["field"]:
        fault["field"] = found["field"]
    return fault


def _read_xml(body: bytes) -> _Changes:
    document = parse_document(body, most_entries=MAX_CHANGES)
    if document.root != "urlset":
        raise Rejected("the root element is <sitemapindex>; publish a <urlset> of changes")
    astray = [
        Fault(index=index, field=name, message=f"{name}={value[:80]!r} is not allowed here")
        for index, entry in enumerate(document.entries)
        for described in (entry.md, *entry.links)
        for name, value in strays(described).items()
    ]
    if astray:
        raise _refused(astray)
    return [(change_of(entry), foreign_of(entry.md)) for entry in document.entries]


_READERS = {
    "application/json": _read_json,
    "application/ndjson": _read_ndjson,
    "application/x-ndjson": _read_ndjson,
    "application/jsonl": _read_ndjson,
    "application/xml": _read_xml,
    "text/xml": _read_xml,
}


def _reader_for(content_type: str) -> Callable[[bytes], _Changes]:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _READERS:
        return _READERS[media_type]
    known = ", ".join(_READERS)
    shown = f"Content-Type {media_type!r} is not understood" if media_type else "no Content-Type"
    raise Rejected(f"{shown}; send one of {known}", status=415)
