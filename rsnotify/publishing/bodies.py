"""A posted body, read in one of three formats: JSON, NDJSON and XML mean the same changes.

Whatever cannot be read is a fault, named with its place, and so is a change that breaks a rule. One
fault refuses the whole body. Every length that a stranger controls has a limit. What a format
allows, but no change has a field for, is ignored, and named in `Body.not_kept`.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TypeVar

import msgspec

from rsnotify.errors import Fault, Rejected
from rsnotify.journal.submission import ENTRIES_BYTES, Fragment, Submission, fragment_of
from rsnotify.resourcesync.change import Change, misfit
from rsnotify.resourcesync.change_rules import FieldFault, faults_of
from rsnotify.resourcesync.document_rules import values
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.xml_reader import change_of, parse_all_of_document
from rsnotify.resourcesync.xml_structure import Oddity
from rsnotify.resourcesync.xml_writer import MD_FIELDS, Document, Entry, Md, foreign_of, strays

MAX_CHANGES = (
    10_000  # Redis stores them in one step, and is busy for a fifth of a second with so many
)
MAX_FAULTS = 100  # a body of 10,000 faults is answered with the first hundred
BODY_BYTES = 8 * 1024 * 1024  # the longest request must not keep Redis busy for long
EXAMPLE = '{"loc": "http://example.com/res1", "change": "updated"}'
NO_CHANGE = ("Expected `object`", "JSON is malformed", "Object missing")
PARTS = "post the changes in parts, each under a key of its own"

KEY = re.compile(r"[\x21-\x7e]{1,255}")

Foreign = Mapping[str, str]


class Body(msgspec.Struct, frozen=True):
    """The changes of a posted body."""

    changes: Sequence[Change]
    foreign: Mapping[int, Foreign] = {}  # attributes of the `rs:md`, by the index of their change
    not_kept: Sequence[Fault] = ()


class ChangeForSets(Change, frozen=True, kw_only=True):
    """A change that says by itself which sets it belongs to."""

    sets: tuple[str, ...]


BodyReader = Callable[[bytes, Kind], Body]


@lru_cache(maxsize=16)
def reader_for(content_type: str) -> BodyReader:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in _READERS:
        return _READERS[media_type]
    known = ", ".join(_READERS)
    shown = f"Content-Type {media_type!r} is not understood" if media_type else "no Content-Type"
    raise Rejected(f"{shown}; send one of {known}; a change is such as {EXAMPLE}", status=415)


def refused(faults: Sequence[Fault]) -> Rejected:
    """The refusal of a body with these faults; its detail names the first."""
    first = faults[0]
    place = f"change {first['index']}" if "index" in first else "the document"
    if (field := first.get("field")) and not first["message"].startswith(field):
        place += f", {field}"
    least = " at least" if len(faults) >= MAX_FAULTS else ""  # no further fault is looked for
    more = f" (and {len(faults) - 1} more{least})" if len(faults) > 1 else ""
    return Rejected(f"{place}: {first['message']}{more}", faults=faults[:MAX_FAULTS])


# --- JSON and NDJSON ---------------------------------------------------------------------------

_JSON: msgspec.json.Decoder[list[Change] | Change] = msgspec.json.Decoder(list[Change] | Change)
_JSON_CHANGE = msgspec.json.Decoder(Change)
_JSON_FOR_SETS = msgspec.json.Decoder(ChangeForSets)
_JSON_PART = msgspec.json.Decoder(msgspec.Raw)
_JSON_PARTS = msgspec.json.Decoder(list[msgspec.Raw])
_PLACE = re.compile(r"^(?P<message>.*?)(?: - at `\$\.?(?P<field>[^`]*)`)?$", re.DOTALL)

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Part = TypeVar("Part")
AnyChange = TypeVar("AnyChange", bound=Change)


def _read_json(body: bytes, _: Kind) -> Body:
    try:
        changes = _JSON.decode(body)
    except msgspec.ValidationError:  # only says what is wrong first
        return Body(_each_decoded(_parts_of_json(body), _JSON_CHANGE, Change))
    except UNREADABLE as error:
        raise _not_json(error) from None
    return Body(_counted(changes if isinstance(changes, list) else [changes]))


def _parts_of_json(body: bytes) -> Sequence[msgspec.Raw]:
    try:
        is_list = body.lstrip()[:1] == b"["
        parts = _JSON_PARTS.decode(body) if is_list else [_JSON_PART.decode(body)]
    except UNREADABLE as error:
        raise _not_json(error) from None
    return _counted(parts)


def _counted(changes: Sequence[Part]) -> Sequence[Part]:
    """These changes; `Rejected` if there are none, or too many."""
    if not changes:
        raise _nothing()
    if len(changes) > MAX_CHANGES:
        raise Rejected(
            f"the body holds {len(changes)} changes, more than {MAX_CHANGES}; {PARTS}", status=413
        )
    return changes


def _read_ndjson(body: bytes, _: Kind) -> Body:
    return Body(_each_decoded(_lines(body), _JSON_CHANGE, Change))


def _lines(body: bytes) -> Sequence[bytes]:
    return _counted([line for line in body.splitlines() if line.strip()])


def _not_json(error: Exception) -> Rejected:
    known = ", ".join(_READERS)
    return Rejected(
        f"the body is not JSON, as its Content-Type says: {error}; a change is such as {EXAMPLE}; "
        f"the hub takes {known}: say in Content-Type which"
    )


def _nothing() -> Rejected:
    return Rejected("the body holds no change")


def read_for_sets(body: bytes, content_type: str) -> list[ChangeForSets]:
    """Read changes that each name their sets, in JSON or NDJSON: XML has no place for names."""
    reader = reader_for(content_type)
    if reader is _read_xml:
        raise Rejected("XML cannot name the sets of a change; send JSON or NDJSON", status=415)
    parts = _lines(body) if reader is _read_ndjson else _parts_of_json(body)
    return _each_decoded(parts, _JSON_FOR_SETS, ChangeForSets)


def _each_decoded(
    parts: Sequence[bytes | msgspec.Raw],
    decoder: msgspec.json.Decoder[AnyChange],
    type_: type[AnyChange],
) -> list[AnyChange]:
    """Decode change by change, so that each fault is named with its place."""
    changes, faults = list[AnyChange](), list[Fault]()
    for index, part in enumerate(parts):
        try:
            changes.append(decoder.decode(part))
        except UNREADABLE as error:
            faults.append(_misfit(index, misfit(error, type_), type_))
    if faults:
        raise refused(faults)
    return changes


def _misfit(index: int, text: str, type_: type[Change]) -> Fault:
    if text.startswith(NO_CHANGE) and " - at " not in text:
        example = EXAMPLE if type_ is Change else f'{{"sets": ["dataset1"], {EXAMPLE[1:]}'
        text += f": a change is an object, such as {example}"
    found = _PLACE.match(text)
    fault = Fault(index=index, message=found["message"] if found else text)
    if found and found["field"]:
        fault["field"] = found["field"]
    return fault


# --- XML ---------------------------------------------------------------------------------------

_ROOT_CAPABILITIES: Mapping[Kind, tuple[str | None, ...]] = {
    "change": (None, "change-notification", "changelist"),
    "framework": (None, "framework-notification"),
}
"""The capabilities that a document may have; one of version 0.8 has none."""

_ROOT_ATTRIBUTES = ("capability", "from_", "until")
_NOT_OF_A_CHANGE = ("at", "completed", "from_", "until", "modified", "path")


def _read_xml(body: bytes, kind: Kind) -> Body:
    whole = body.lstrip(b" \t\r\n")  # templates begin with an empty line
    document, oddities = parse_all_of_document(whole, most_entries=MAX_CHANGES)
    if document.root != "urlset":
        raise Rejected("the root element is <sitemapindex>; publish a <urlset> of changes")
    faults = [*_misplaced(oddities, "unknown"), *_of_root(document, kind)]
    for index, entry in enumerate(document.entries):
        faults += _of_entry(index, entry)
    if faults:
        raise refused(faults)
    if not document.entries:
        raise _nothing()
    changes = [change_of(entry) for entry in document.entries]
    foreign = {
        index: found
        for index, entry in enumerate(document.entries)
        if (found := foreign_of(entry.md))
    }
    return Body(changes, foreign, list(islice(_misplaced(oddities, "foreign"), MAX_FAULTS)))


def _misplaced(oddities: Sequence[Oddity], kind: str) -> Iterator[Fault]:
    for oddity in oddities:
        if oddity.kind == kind:
            fault = Fault(field=oddity.path, message=oddity.message)
            if oddity.index is not None:
                fault["index"] = oddity.index
            yield fault


def _of_root(document: Document, kind: Kind) -> Iterator[Fault]:
    """The faults of the envelope. Only its values are judged: the hub writes its own envelope."""
    md = document.md or Md()
    if md.capability not in _ROOT_CAPABILITIES[kind]:
        known = " or ".join(name for name in _ROOT_CAPABILITIES[kind] if name)
        message = f"capability is {md.capability!r}: publish a {known} here"
        yield Fault(field="/urlset/rs:md/@capability", message=message)
    for name in MD_FIELDS.values():
        if name not in _ROOT_ATTRIBUTES and getattr(md, name) is not None:
            message = f"{name} is not used here: remove it"
            yield Fault(field=f"/urlset/rs:md/@{name}", message=message)
    for wrong in values(document.md, document.links, "/urlset"):
        yield Fault(field=wrong.path, message=wrong.message)


def _of_entry(index: int, entry: Entry) -> Iterator[Fault]:
    for described in (entry.md, *entry.links):
        for name, value in strays(described).items():
            message = f"{name}={value[:80]!r} is not allowed here"
            yield Fault(index=index, field=name, message=message)
    for name in _NOT_OF_A_CHANGE if entry.md is not None else ():
        if getattr(entry.md, name) is not None:
            message = f"{name.rstrip('_')} is not used in the rs:md of a change: remove it"
            yield Fault(index=index, field=name.rstrip("_"), message=message)


_READERS: Mapping[str, BodyReader] = {
    "application/json": _read_json,
    "application/ndjson": _read_ndjson,
    "application/x-ndjson": _read_ndjson,
    "application/jsonl": _read_ndjson,
    "application/xml": _read_xml,
    "text/xml": _read_xml,
}


# --- What was read, judged ---------------------------------------------------------------------


def read_submission(
    kind: Kind,
    body: bytes,
    content_type: str,
    key: str | None,
    *,
    most_bytes: int = ENTRIES_BYTES,
) -> Submission:
    """The body as a submission to a channel of this kind; `Rejected` with every fault in it."""
    _check_request(body, key)
    read = reader_for(content_type)(body, kind)
    fingerprint = _fingerprint(body, key)
    fragments = judge_changes(read.changes, kind, read.foreign, most_bytes)
    return Submission(fragments, key, fingerprint, read.not_kept)


def read_submissions(
    body: bytes, content_type: str, key: str | None, *, most_bytes: int = ENTRIES_BYTES
) -> dict[str, Submission]:
    """The body as a submission to each of the sets that its changes name.

    The limits hold for what is stored: a change for two sets counts twice. Its fragment is the same
    in each. The fingerprint is that of the whole body, so a key stands for all of it.
    """
    _check_request(body, key)
    changes = read_for_sets(body, content_type)
    _check_named(changes)
    fragments = judge_changes(changes, "change", {}, most_bytes)
    fingerprint = _fingerprint(body, key)
    by_set: dict[str, list[Fragment]] = {}
    for change, fragment in zip(changes, fragments, strict=True):
        for name in dict.fromkeys(change.sets):
            by_set.setdefault(name, []).append(fragment)
    if sum(len(fragment.xml) for each in by_set.values() for fragment in each) > most_bytes:
        raise _too_many_bytes(most_bytes)
    return {name: Submission(each, key, fingerprint) for name, each in by_set.items()}


def _check_named(changes: Sequence[ChangeForSets]) -> None:
    faults = [
        Fault(index=index, field="sets", message="names no set: name one at least")
        for index, change in enumerate(changes)
        if not change.sets
    ]
    if faults:
        raise refused(faults)
    if (number := sum(len(set(change.sets)) for change in changes)) > MAX_CHANGES:
        detail = f"counted once for each set these are {number} changes, more than {MAX_CHANGES}"
        raise Rejected(f"{detail}; {PARTS}", status=413)


def _check_request(body: bytes, key: str | None) -> None:
    if key is not None and KEY.fullmatch(key) is None:
        raise Rejected("an Idempotency-Key is 1 to 255 visible ASCII characters")
    if len(body) > BODY_BYTES:
        raise Rejected(f"the body exceeds {BODY_BYTES} bytes; {PARTS}", status=413)


def _fingerprint(body: bytes, key: str | None) -> str:
    return "" if key is None else hashlib.blake2b(body, digest_size=12).hexdigest()


def judge_changes(
    changes: Iterable[Change],
    kind: Kind,
    foreign: Mapping[int, Foreign],
    most_bytes: int = ENTRIES_BYTES,
) -> list[Fragment]:
    """A fragment for each change, or `Rejected` with the faults of all."""
    fragments: list[Fragment] = []
    faults: list[Fault] = []
    size = 0
    for index, change in enumerate(changes):
        try:
            if found := faults_of(change, kind):
                faults += _at(index, found)
            elif not faults:
                fragment = fragment_of(change, foreign.get(index))
                fragments.append(fragment)
                size += len(fragment.xml)
        except Rejected as unfit:
            faults.append(Fault(index=index, message=unfit.detail))
        if len(faults) >= MAX_FAULTS or size > most_bytes:
            break
    if size > most_bytes:
        raise _too_many_bytes(most_bytes)
    if faults:
        raise refused(faults)
    return fragments


def _too_many_bytes(most: int) -> Rejected:
    return Rejected(f"as entries the changes exceed {most} bytes; {PARTS}", status=413)


def _at(index: int, found: Iterable[FieldFault]) -> Iterator[Fault]:
    for field, message in found:
        yield Fault(index=index, field=field, message=message)
