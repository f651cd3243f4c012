"""What a Source posts: a body becomes fragments, or every fault in it is named.

One fault refuses the whole body. Every length that a stranger controls has a cap.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rsnotify.core.bodies import (
    MAX_CHANGES,
    MAX_FAULTS,
    PARTS,
    ChangeForSets,
    Foreign,
    read_for_sets,
    reader_for,
    refused,
)
from rsnotify.errors import Fault, Rejected
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.change_rules import FieldFault, faults_of, needs_normalising, normalised
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.xml_writer import render_fragment

BODY_BYTES = 8 * 1024 * 1024  # the longest request must not keep Redis busy for long
ENTRIES_BYTES = BODY_BYTES + 2 * 1024 * 1024  # written as entries, where `&` takes five bytes
FRAGMENT_BYTES = 32 * 1024  # a notification reads up to 1,000 at once: this bounds its memory
KEY = re.compile(r"[\x21-\x7e]{1,255}")

LOC_START = len(b"<url><loc>")  # where the escaped loc of every fragment begins


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
    not_kept: Sequence[Fault] = ()  # what was allowed in the body, but is not in the fragments

    @property
    def size(self) -> int:
        return sum(len(fragment.xml) for fragment in self.fragments)

    def of_source_description(self) -> "Submission | None":
        """Its changes of the Source Description, which concern every set; None without any."""
        chosen = [each for each in self.fragments if b' capability="description"' in each.xml]
        return self._replace(fragments=chosen) if chosen else None


def read_submission(body: bytes, content_type: str, kind: Kind, key: str | None) -> Submission:
    """The body as a submission to a channel of this kind; `Rejected` with every fault in it."""
    _check_request(body, key)
    read = reader_for(content_type)(body, kind)
    return Submission(judge(read.changes, kind), key, _fingerprint(body, key), read.not_kept)


def read_submissions(body: bytes, content_type: str, key: str | None) -> dict[str, Submission]:
    """The body as a submission to each of the sets that its changes name.

    The limits hold for what is stored: a change of two sets counts twice. Its form is the same in
    all of them. The fingerprint is that of the whole body, so a key belongs to all of it.
    """
    _check_request(body, key)
    changes = read_for_sets(body, content_type)
    if not changes:
        raise Rejected("the body holds no change")
    _check_named(changes)
    fragments = judge([(change, None) for change in changes], "change")
    fingerprint = _fingerprint(body, key)
    by_set: dict[str, list[Fragment]] = {}
    for change, fragment in zip(changes, fragments, strict=True):
        for name in dict.fromkeys(change.sets):
            by_set.setdefault(name, []).append(fragment)
    if sum(len(fragment.xml) for each in by_set.values() for fragment in each) > ENTRIES_BYTES:
        raise _too_many_bytes()
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


def judge(changes: Iterable[tuple[Change, Foreign | None]], kind: Kind) -> list[Fragment]:
    """A fragment for each change, or `Rejected` with the faults of all."""
    fragments, faults, size = [], list[Fault](), 0
    for index, (change, foreign) in enumerate(changes):
        try:
            if found := faults_of(change, kind):
                faults += _at(index, found)
            elif not faults:
                fragments.append(fragment_of(change, foreign))
                size += len(fragments[-1].xml)
        except Rejected as unfit:
            faults.append(Fault(index=index, message=unfit.detail))
        if len(faults) >= MAX_FAULTS or size > ENTRIES_BYTES:
            break
    if size > ENTRIES_BYTES:
        raise _too_many_bytes()
    if faults:
        raise refused(faults)
    return fragments


def _too_many_bytes() -> Rejected:
    return Rejected(f"as entries the changes exceed {ENTRIES_BYTES} bytes; {PARTS}", status=413)


def fragment_of(change: Change, foreign: Foreign | None = None) -> Fragment:
    """The journal's form of a change without faults."""
    xml = xml_of(change, foreign)
    own = 0 if change.datetime is None else max(0, int(Position.parse(change.datetime)))
    return Fragment(own, change.change == "deleted", xml.index(b"</loc>") - LOC_START, xml)


def xml_of(change: Change, foreign: Foreign | None = None) -> bytes:
    """…and only its XML."""
    if needs_normalising(change):
        change = normalised(change)
    xml = render_fragment(change, foreign=foreign)
    if len(xml) > FRAGMENT_BYTES:
        raise Rejected(f"the change takes {len(xml)} bytes; at most {FRAGMENT_BYTES} are allowed")
    return xml


def _at(index: int, found: Iterable[FieldFault]) -> Iterator[Fault]:
    for field, message in found:
        yield Fault(index=index, field=field, message=message)
