"""What documents of one Source must say of each other. Pure: nothing here fetches."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.document_rules import Violation, Violations
from rsnotify.resourcesync.tables import ARCHIVES, CHANNELS, LISTS
from rsnotify.resourcesync.xml_writer import Document, Entry, Md
from rsnotify_client.address import joined
from rsnotify_client.discovery import UP
from rsnotify_client.notification import Received, position_of

ARCHIVE = "-archive"
SNAPSHOTS = ("resourcelist", "resourcedump")
TIMES = {"from": "from_", "until": "until", "at": "at", "completed": "completed"}
Span = tuple[Position | None, Position | None]
"""`from` and `until` of a list, as far as they are stated."""

CLAUSES = {"changelist": "Core 12.2", "changedump": "Core 13.1"} | {
    "changelist-archive": "Archives 5",
    "changedump-archive": "Archives 6",
}


class NamedDocument(NamedTuple):
    """An address as a document names it, and what is to be found there."""

    url: str
    capability: str  # nothing if the document does not say
    relation: str  # contained, up, index, contents, next
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
    if (after := link_of(url, document, "next")) is not None:
        yield NamedDocument(after, capability, "next")
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
        stated = (entry.md and entry.md.capability) or ""
        if stated in (*LISTS, *ARCHIVES):
            yield NamedDocument(loc, stated, "contained", entry)
    elif own in ARCHIVES:
        yield NamedDocument(loc, own.removesuffix(ARCHIVE), "contained", entry)
    elif own in ("resourcedump", "changedump"):
        contents = (link.href for link in entry.links if link.rel == "contents")
        yield from (
            NamedDocument(joined(url, each), f"{own}-manifest", "contents", entry)
            for each in contents
        )


class NamedChannel(NamedTuple):
    """A channel as a Capability List names it."""

    capability: str
    url: str
    hubs: tuple[str, ...] = ()


def channels_in(url: str, document: Document) -> Iterator[NamedChannel]:
    """Each channel, its alternates included."""
    for entry in document.entries if capability_of(document) == "capabilitylist" else ():
        capability = (entry.md and entry.md.capability) or ""
        if capability in CHANNELS:
            hubs = tuple(joined(url, link.href) for link in entry.links if link.rel == "hub")
            yield NamedChannel(capability, joined(url, entry.loc), hubs)
            for link in entry.links:
                if link.rel == "alternate" and link.href.startswith(("ws://", "wss://")):
                    yield NamedChannel(capability, link.href)


class NamedPackage(NamedTuple):
    """A ZIP as a dump names it."""

    url: str
    dump: str
    capability: str  # of its manifest
    md: Md
    contents: str | None  # where a copy of its manifest is


def packages_in(url: str, document: Document) -> Iterator[NamedPackage]:
    own = capability_of(document)
    if document.root == "sitemapindex" or own not in ("resourcedump", "changedump"):
        return
    for entry in document.entries:
        contents = [joined(url, link.href) for link in entry.links if link.rel == "contents"]
        copy = contents[0] if contents else None
        loc = joined(url, entry.loc)
        yield NamedPackage(loc, url, f"{own}-manifest", entry.md or Md(), copy)


def parts_of(url: str, document: Document) -> list[str]:
    """What belongs to this one as a whole: the lists of an index, a dump's manifests, a next page.

    Where a dump gives no address of a manifest, the package's is taken.
    """
    found = [each.contents or each.url for each in packages_in(url, document)]
    if document.root == "sitemapindex":
        found = [joined(url, entry.loc) for entry in document.entries]
    after = link_of(url, document, "next")
    return found if after is None else [*found, after]


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


def _other_times(stated: Md, document: Document, namer: str) -> Violations:
    for name, field in TIMES.items():
        said, own = (position_of(getattr(md, field)) for md in (stated, document.md or Md()))
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
    if is_index(document) and {each.url for each in named_in(up, document)} & set(chain):
        return  # until 0.9 it led to the index
    if capability_of(document) != "capabilitylist":
        message = f"up leads to {up}, which is no Capability List"
        yield Violation("Core 7", path, message, "Let it lead to the set's Capability List.")
    elif up not in chain and not {each.url for each in named_in(up, document)} & set(chain):
        message = f"up leads to {up}, a Capability List that does not name it"
        yield Violation("Core 7", path, message, "Let it lead to the Capability List of its set.")


def is_index(document: Document) -> bool:
    return document.root == "sitemapindex"


def round_in_circles(read: Mapping[str, Document]) -> Iterator[tuple[str, Violation]]:
    """Indexes that lead back to themselves, and those that name indexes; pages without an end."""
    lists = {url: _lists_in(url, document, read) for url, document in read.items()}
    for url, back in _leading_back(lists):
        own = "itself" if back == url else f"{back}, which leads back to it: a circle"
        message = f"the index names {own}"
        wrong = Violation("Sitemap protocol", "/sitemapindex", message, "Let it name lists only.")
        yield url, wrong
    for url, named in lists.items():
        for each in named:
            if is_index(read[each]) and url not in reached(each, lists):
                message = f"the index names {each}, which is an index, too"
                advice = "Let it name lists only."
                yield url, Violation("Sitemap protocol", "/sitemapindex", message, advice)
    pages = {url: _page_after(url, document, read) for url, document in read.items()}
    for url, back in _leading_back(pages):
        message = f"the next page is {back}, which has been read: the pages have no end"
        path = f"/{read[url].root}/rs:ln[@rel='next']"
        yield url, Violation("RFC 8288", path, message, "Let the last page have no next one.")


def _lists_in(url: str, document: Document, read: Mapping[str, Document]) -> list[str]:
    named = (joined(url, entry.loc) for entry in document.entries) if is_index(document) else ()
    return [each for each in named if each in read]


def _page_after(url: str, document: Document, read: Mapping[str, Document]) -> list[str]:
    after = link_of(url, document, "next")
    return [after] if after is not None and after in read else []


def _leading_back(edges: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """One edge of each circle: the one that closes it."""
    done: set[str] = set()
    for start in edges:
        path = {start: iter(edges[start])} if start not in done else {}
        while path:
            node = next(reversed(path))
            after = next(path[node], None)
            if after is None:
                del path[node]
                done.add(node)
            elif after in path:
                yield node, after
            elif after not in done:
                path[after] = iter(edges[after])


def reached(start: str, edges: Mapping[str, Sequence[str]]) -> dict[str, None]:
    """Where it begins, and all that it leads to, each once."""
    found, waiting = {start: None}, [start]
    while waiting:
        new = [each for each in edges.get(waiting.pop(), ()) if each not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return found


def not_in_its_index(url: str, document: Document, read: Mapping[str, Document]) -> Violations:
    """Whether the index that a list links to names it, or the page that it goes on from."""
    index = link_of(url, document, "index")
    if index is None or index not in read or not is_index(read[index]) or is_index(document):
        return
    named = {joined(each, entry.loc) for each in pages(index, read) for entry in read[each].entries}
    begun = [each for each in read if url in pages(each, read)]
    if named.isdisjoint(begun):
        path, advice = f"/{document.root}/rs:ln[@rel='index']", "Let `index` lead to its own index."
        yield Violation("Core 7", path, f"its index {index} does not name it", advice)


def pages(url: str, read: Mapping[str, Document]) -> list[str]:
    """This document and its next pages, as far as they were read."""
    found = [url]
    while (after := _page_after(found[-1], read[found[-1]], read)) and after[0] not in found:
        found += after
    return found


def before_the_whole(whole: Document, named: NamedDocument, own: Md | None) -> Violations:
    """Whether a part of a snapshot was taken within the time of the whole; `own` is the part's.

    A package may be older than its dump, where nothing in it has changed since.
    """
    stated, md = (named.entry and named.entry.md) or Md(), own or Md()
    begin, end = (position_of(getattr(whole.md or Md(), name)) for name in ("at", "completed"))
    at, completed = (
        position_of(getattr(stated, name) or getattr(md, name)) for name in ("at", "completed")
    )
    kind = "index" if is_index(whole) else "dump"
    is_package = named.relation == "contents"
    advice = f"Let the {kind} have the earliest `at` and the latest `completed` of its parts."
    if begin is not None and at is not None and at < begin and not is_package:
        message = f"at {at} is before that of its {kind}, {begin}"
        yield Violation("Core 10.2", "/urlset/rs:md/@at", message, advice)
    if end is not None and completed is not None and completed > end:
        message = f"completed {completed} is after that of its {kind}, {end}"
        yield Violation("Core 10.2", "/urlset/rs:md/@completed", message, advice)


def unlike_its_lists(document: Document, spans: Sequence[Span]) -> Violations:
    """Whether an index of changes covers just what its lists cover."""
    clause = CLAUSES.get(capability_of(document))
    if clause is None or not is_index(document) or not spans:
        return
    (begin, end), first, last = span_of(document.md), spans[0][0], spans[-1][1]
    path, advice = "/sitemapindex/rs:md/@", "Let the index begin and end as its lists do."
    if begin is not None and first is not None and begin != first:
        where = "later" if begin > first else "earlier"
        message = f"from {begin} is {where} than that of its first list, {first}"
        yield Violation(clause, path + "from", message, advice)
    if end is not None and end != last:
        message = f"until {end} is not that of its last list, {last or 'which is open'}"
        yield Violation(clause, path + "until", message, advice)


def archive_apart(capability: str, begin: Position | None, archived: Iterable[Span]) -> Violations:
    """Whether lists begin where their archive ended, or before."""
    ended = max((until for _, until in archived if until is not None), default=None)
    if begin is None or ended is None or begin <= ended:
        return
    message = f"the lists begin at {begin}, their archive ends at {ended}: a gap"
    advice = "Let the archive end where the lists begin."
    yield Violation(CLAUSES[capability + ARCHIVE], "/*/rs:md/@from", message, advice)


def names_nothing(document: Document) -> Violations:
    if capability_of(document) == "description" and not document.entries:
        message = "the Source Description names no Capability List"
        yield Violation("Core 8", f"/{document.root}", message, "Name one for each set.")
    if is_index(document) and capability_of(document) in SNAPSHOTS and not document.entries:
        message = "the index names nothing"
        yield Violation("Sitemap protocol", "/sitemapindex", message, "Let it name its lists.")


def no_page(before: Document, document: Document) -> Violations:
    """Whether what is called the next page of a document is of another kind."""
    if before.root != document.root:
        message = f"it is a {document.root}, not a page of a {before.root}"
        advice = "Let `next` lead to a page of the same document."
        yield Violation("RFC 8288", f"/{document.root}", message, advice)


def not_consecutive(document: Document, spans: Sequence[Span]) -> Violations:
    """Whether lists of changes follow each other without a gap; `spans` is one for each entry."""
    capability = capability_of(document)
    clause = CLAUSES.get(capability)
    if clause is None or not (is_index(document) or capability.endswith(ARCHIVE)):
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
            advice = "Let each notification begin where the last one ended."
            yield Violation("Change Notification 3", path, message, advice)
        before = each.until
