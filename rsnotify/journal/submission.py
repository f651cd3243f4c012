"""What one request appends to a journal: changes as the journal keeps them, under one key."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from rsnotify.errors import Fault, Rejected
from rsnotify.resourcesync.change import Change, Link, Position
from rsnotify.resourcesync.change_filter import FORMER
from rsnotify.resourcesync.notification import (
    END,
    LOC,
    LOC_END,
    Forms,
    render_forms,
    spell_out,
)

ENTRIES_BYTES = 10 * 1024 * 1024  # written as entries, where `&` takes five bytes
FRAGMENT_BYTES = 32 * 1024  # a notification reads up to 1,000 at once: this bounds its memory
DIGEST_LENGTH = 12  # characters of a digest, which stands for a key in Redis


class Fragment(msgspec.Struct, frozen=True):
    """One change, in XML and in the short form in which the journal stores it."""

    position: int  # asked for: the Source's own datetime in microseconds, or 0
    deleted: bool
    short: bytes
    xml: bytes
    load: str = ""  # the load that found it: it counts unless the resource changed since

    @property
    def loc(self) -> bytes:
        """The escaped address of the resource."""
        return self.short[len(LOC) : self.short.index(LOC_END)]

    def saying(self, former: bytes) -> "Fragment":
        """The change with what the append has added to it, of what its resource was."""
        short = self.short.removesuffix(END) + former + END
        return msgspec.structs.replace(self, short=short, xml=spell_out(short))


class Submission(msgspec.Struct, frozen=True):
    """Changes that are appended to the journal together, under one key."""

    fragments: Sequence[Fragment]
    key: str | None = None
    fingerprint: str = ""
    not_kept: Sequence[Fault] = ()  # what was allowed in the body, but is not in the fragments

    @property
    def digest(self) -> str:
        """The digest that stands for its key in Redis."""
        if not self.key:
            return ""
        digest = hashlib.blake2b(self.key.encode(), digest_size=DIGEST_LENGTH * 3 // 4).digest()
        return base64.urlsafe_b64encode(digest).decode()

    def of_source_description(self) -> "Submission | None":
        """Its changes of the Source Description, which concern every set; None without any."""
        chosen = [each for each in self.fragments if b' capability="description"' in each.xml]
        return msgspec.structs.replace(self, fragments=chosen) if chosen else None


def fragment_of(change: Change, foreign: Mapping[str, str] | None = None) -> Fragment:
    """The journal's form of a change without faults."""
    xml, short = forms_of(change, foreign)
    own = 0 if change.datetime is None else max(0, int(Position.parse(change.datetime)))
    return Fragment(own, change.change == "deleted", short, xml)


def forms_of(change: Change, foreign: Mapping[str, str] | None = None) -> Forms:
    """The XML of a change, and the short form."""
    lastmod, digests = change.lastmod, change.hash
    if (
        change.links
        or (lastmod and not lastmod.endswith("Z") and "T" in lastmod)
        or (digests and " " in digests)
    ):
        change = _normalised(change)
    forms = render_forms(change, foreign=foreign)
    if (size := len(forms[0])) > FRAGMENT_BYTES:
        raise Rejected(f"the change takes {size} bytes; at most {FRAGMENT_BYTES} are allowed")
    return forms


def _normalised(change: Change) -> Change:
    """The same change, with dates in UTC and single spaces between hashes, as readers need them.
    What its resource was, the append says: of a copied change that may be of another hub."""
    return msgspec.structs.replace(
        change,
        lastmod=change.lastmod and _in_utc(change.lastmod),
        hash=change.hash and " ".join(change.hash.split()),
        links=tuple(_normalised_link(link) for link in change.links if link.rel != FORMER),
    )


def _normalised_link(link: Link) -> Link:
    return msgspec.structs.replace(
        link,
        modified=link.modified and _in_utc(link.modified),
        hash=link.hash and " ".join(link.hash.split()),
    )


def _in_utc(date: str) -> str:
    """The same moment with `Z`: widespread readers apply an offset with the wrong sign."""
    if "T" not in date or date.endswith("Z"):
        return date
    moment = datetime.fromisoformat(date).astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat() + "Z"
