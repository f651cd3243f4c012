"""What documents of one Source must say of each other. Pure: nothing here fetches."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.validation.entry_rules import Violation, Violations
from rsnotify.resourcesync.validation.tables import ARCHIVES, CHANNELS, LISTS
from rsnotify.resourcesync.xml_writer import Document, Entry, Md
from rsnotify_client.address import joined
from rsnotify_client.discovery import UP
from rsnotify_client.notification import Received, position_of

ARCHIVE = "-archive"
TIMES = {"from": "from_", "until": "until", "at": "at", "completed": "completed"}
Span = tuple[Position | None, Position | None]
"""`from` and `until` of a list, as far as they are told."""

CLAUSES = {"changelist": "Core 12.2", "changedump": "Core 13.1"} | {
    "changelist-archive": "Archives 5",
    "changedump-archive": "Archives 6",
}


class NamedDocument(NamedTuple):
    """An address as a document names it, and what is to be found there."""

    url: str
    capability: str  # nothing if the document does not say
    relation: str  # contained, up, index, contents
    entry: Entry | None = None


def capability_of(document: Document) -> str:
    return (document.md and document.md.capability) or ""


def is_plain_sitemap(document: Document) -> bool:
    """Whether it says nothing of ResourceSync: many sites have these for search engines."""
    return document.md is None and not any(entry.md for entry in document.entries)


def link_of(url: str, document: Document, *relations: str) -> str | None:
    """Where the first of the root's links of these relations leads."""
    hrefs = [link.href for link in document.links if link.rel in relations]
    return joined(url, hrefs[0]) if hrefs else None


# What a document names --------------------------------------------------------------------------


def named_in(url: str, document: Document) -> Iterator[NamedDocument]:
    """Every document of the Source that this one leads to, in its order."""
    for entry in document.entries:
        yield from _named_by_entry(url, document, entry)
    capability = capability_of(document)
    if (index := link_of(url, document, "index")) is not None:
        yield NamedDocument(index, capability, "index")
    if (up := link_of(url, document, *UP)) is not None:
        yield NamedDocument(up, "description" if capability == "capabilitylist" else "", "up")


def _named_by_entry(url: str, document: Document, entry: Entry) -> Iterator[NamedDocument]:
    own, loc = capability_of(document), joined(url, entry.loc)
    if document.root == "sitemapindex":
        yield NamedDocument(loc, own, "contained", entry)
    elif own == "description":
        yield NamedDocument(loc, "capabilitylist", "contained", entry)
    elif own == "capabilitylist":
        told = (entry.md and entry.md.capability) or ""
        if told in (*LISTS, *ARCHIVES):
            yield NamedDocument(loc, told, "contained", entry)
    elif own in ARCHIVES:
        yield NamedDocument(loc, own.removesuffix(ARCHIVE), "contained", entry)
    elif own in ("resourcedump", "changedump"):
        contents = (link.href for link in entry.links if link.rel == "contents")
        yield from (
            NamedDocument(joined(url, each), f"{own}-manifest", "contents") for each in contents
        )


def channels_in(url: str, document: Document) -> Iterator[tuple[str, str]]:
    """The capability and the address of each channel, its alternates included."""
    for entry in document.entries if capability_of(document) == "capabilitylist" else ():
        capability = (entry.md and entry.md.capability) or ""
        if capability in CHANNELS:
            yield capability, joined(url, entry.loc)
            for link in entry.links:
                if link.rel == "alternate" and link.href.startswith(("ws://", "wss://")):
                    yield capability, link.href


# What must agree --------------------------------------------------------------------------------


def unlike(named: NamedDocument, document: Document, namer: str) -> Violations:
    """Whether a document is what `namer` says that it is."""
    own, path = capability_of(document), f"/{document.root}/rs:md/@capability"
    if named.capability and own and own != named.capability:
        message = f"{namer} leads here to a {named.capability}, but this is a {own}"
        yield Violation("Core 7", path, message, "Let it lead to the right document.")
    elif named.relation == "index" and document.root != "sitemapindex":
        message = f"{namer} calls this its index, but it is no <sitemapindex>"
        yield Violation("Core 7", f"/{document.root}", message, "Let `index` lead to the index.")
    elif named.entry is not None:
        yield from _other_times(named.entry.md or Md(), document, namer)


def _other_times(told: Md, document: Document, namer: str) -> Violations:
    for name, field in TIMES.items():
        said, own = (position_of(getattr(md, field)) for md in (told, document.md or Md()))
        if said is not None and said != own:
            path = f"/{document.root}/rs:md/@{name}"
            message = f"{namer} says {name} {said}, the document says {own or 'nothing'}"
            yield Violation("Core 7", path, message, "Let both say the same.")


def wrong_way_up(up: str, chain: Sequence[str], upper: Mapping[str, Document]) -> Violations:
    """Whether `up` of a list leads to a Capability List that leads back to it.

    `chain` is the list itself and what led to it, up to a Capability List.
    """
    document = upper.get(up)
    if document is None:
        return
    path = "/*/rs:ln[@rel='up']"
    if capability_of(document) != "capabilitylist":
        message = f"up leads to {up}, which is no Capability List"
        yield Violation("Core 7", path, message, "Let it lead to the set's Capability List.")
    elif up not in chain and not {each.url for each in named_in(up, document)} & set(chain):
        message = f"up leads to {up}, a Capability List that does not name it"
        yield Violation("Core 7", path, message, "Let it lead to the Capability List of its set.")


def not_consecutive(document: Document, spans: Sequence[Span]) -> Violations:
    """Whether lists of changes follow each other without a gap; `spans` is one for each entry."""
    capability = capability_of(document)
    clause = CLAUSES.get(capability)
    if clause is None or not (document.root == "sitemapindex" or capability.endswith(ARCHIVE)):
        return
    for number, ((_, until), (begin, _)) in enumerate(pairwise(spans), 2):
        if until is None or begin is None or until == begin:
            continue
        path = f"/{document.root}/*[{number}]"
        if begin > until:
            message = f"the list begins at {begin}, the one before ends at {until}: a gap"
        else:
            message = f"the list begins at {begin}, before the end of the one before, {until}"
        yield Violation(clause, path, message, "Let each list begin where the last one ended.")


def span_of(md: Md | None) -> Span:
    found = md or Md()
    return position_of(found.from_), position_of(found.until)


def intervals_apart(begins: Position | None, received: Sequence[Received]) -> Violations:
    """Whether the notifications of a channel cover consecutive intervals."""
    before = begins
    for number, each in enumerate(received, 1):
        if before is not None and each.joins and each.from_ != before:
            kind = "nothing covers what lies between" if each.from_ > before else "they overlap"
            message = f"it begins at {each.from_}, the one before ended at {before}: {kind}"
            path = f"/notification[{number}]/rs:md/@from"
            mend = "Let each notification begin where the last one ended."
            yield Violation("Change Notification 3", path, message, mend)
        before = each.until
