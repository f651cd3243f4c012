"""What a Source posts: a body becomes fragments, or every fault in it is named.

One fault refuses the whole body. Every length that a stranger controls has a cap.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

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
from rsnotify.resourcesync.fragments import Forms, render_forms
from rsnotify.resourcesync.notification import Kind
from rsnotify.resourcesync.short_form import LOC, LOC_END, shorten

BODY_BYTES = 8 * 1024 * 1024  # the longest request must not keep Redis busy for long
ENTRIES_BYTES = BODY_BYTES + 2 * 1024 * 1024  # written as entries, where `&` takes five bytes
FRAGMENT_BYTES = 32 * 1024  # a notification reads up to 1,000 at once: this bounds its memory
KEY = re.compile(r"[\x21-\x7e]{1,255}")
DIGEST_LENGTH = 12  # characters: of what stands for a key in Redis
PRINT_LENGTH = 6  # of a fingerprint, where it stands in a row of the journal


class Fragment(msgspec.Struct, frozen=True):
    """One change, in XML and in the short form in which the journal stores it."""

    position: int  # the Source's own datetime in microseconds, or 0
    deleted: bool
    short: bytes
    xml: bytes
    load: str = ""  # the load that found it: it counts unless the resource changed since

    @property
    def loc(self) -> bytes:
        """Its escaped loc."""
        return self.short[len(LOC) : self.short.index(LOC_END)]

    @classmethod
    def of_row(cls, position: Position, xml: bytes) -> "Fragment":
        """What has been in a journal already."""
        return cls(int(position), b'<rs:md change="deleted"' in xml, shorten(xml), xml)


class Submission(msgspec.Struct, frozen=True):
    """Changes that are appended to the journal together, under one key."""

    fragments: Sequence[Fragment]
    key: str | None = None
    fingerprint: str = ""
    not_kept: Sequence[Fault] = ()  # what was allowed in the body, but is not in the fragments

    @property
    def digest(self) -> str:
        """What stands for its key in Redis."""
        if not self.key:
            return ""
        digest = hashlib.blake2b(self.key.encode(), digest_size=DIGEST_LENGTH * 3 // 4).digest()
        return base64.urlsafe_b64encode(digest).decode()

    @property
    def size(self) -> int:
        size = 0
        for fragment in self.fragments:
            size += len(fragment.xml)
        return size

    def of_source_description(self) -> "Submission | None":
        """Its changes of the Source Description, which concern every set; None without any."""
        chosen = [each for each in self.fragments if b' capability="description"' in each.xml]
        return msgspec.structs.replace(self, fragments=chosen) if chosen else None


def read_submission(body: bytes, content_type: str, kind: Kind, key: str | None) -> Submission:
    """The body as a submission to a channel of this kind; `Rejected` with every fault in it."""
    _check_request(body, key)
    read = reader_for(content_type)(body, kind)
    fragments = judge(read.changes, kind, read.foreign)
    return Submission(fragments, key, _fingerprint(body, key), read.not_kept)


def read_submissions(body: bytes, content_type: str, key: str | None) -> dict[str, Submission]:
    """The body as a submission to each of the sets that its changes name.

    The limits hold for what is stored: a change of two sets counts twice. Its form is the same in
    all of them. The fingerprint is that of the whole body, so a key belongs to all of it.
    """
    _check_request(body, key)
    changes = read_for_sets(body, content_type)
    _check_named(changes)
    fragments = judge(changes, "change", {})
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


def judge(changes: Iterable[Change], kind: Kind, foreign: Mapping[int, Foreign]) -> list[Fragment]:
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
    xml, short = forms_of(change, foreign)
    own = 0 if change.datetime is None else max(0, int(Position.parse(change.datetime)))
    return Fragment(own, change.change == "deleted", short, xml)


def forms_of(change: Change, foreign: Foreign | None = None) -> Forms:
    """…and only its two forms."""
    if needs_normalising(change):
        change = normalised(change)
    forms = render_forms(change, foreign=foreign)
    if (size := len(forms[0])) > FRAGMENT_BYTES:
        raise Rejected(f"the change takes {size} bytes; at most {FRAGMENT_BYTES} are allowed")
    return forms


def _at(index: int, found: Iterable[FieldFault]) -> Iterator[Fault]:
    for field, message in found:
        yield Fault(index=index, field=field, message=message)
