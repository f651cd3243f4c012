"""Some resources of a Source, compared with the hash and the length that its lists state.

Rules that hold here: a resource that differs is a violation only if no Change List has a
change since: it is looked at again, and the lists are read again. So a Source may change meanwhile.

`Checked`, `Bounds` and `Asking` are those of every part of an inspection.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import chain, islice
from typing import NamedTuple, TypeVar

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.document_rules import Violation
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Document
from rsnotify_client.address import host_of, joined
from rsnotify_client.changelists import ChangeLists, HistoryGone
from rsnotify_client.notification import position_of
from rsnotify_client.resource import Check
from rsnotify_client.web import Reply, Unreachable, Web, refused
from rsnotify_mirror.inspection.relations import capability_of

RESOURCE = "resource"  # the kind of a resource that was compared
LINKED = "linked"  # …of what a link `describedby` or `duplicate` leads to
TOKEN_NEEDED = (401, 403)
PACKAGE = "package"  # …of a ZIP


class Checked(msgspec.Struct):
    """What became of one address; without an edition it is no document that could be read."""

    document: str
    kind: str
    edition: str | None = None
    violations: list[Violation] = []
    error: str | None = None  # why it could not be judged, or not to its end
    note: str | None = None  # what else there is to say


class Bounds(msgspec.Struct, frozen=True):
    """How far an inspection goes."""

    documents: int = 200
    depth: int = 8  # from the first address
    total_bytes: int = 512 * 1024 * 1024
    entries: int = 200_000  # of indexes, Capability Lists and dumps, which are kept in memory
    samples: int = 20
    sample_bytes: int = 64 * 1024 * 1024
    links: int = 20
    packages: int = 20
    package_bytes: int = 256 * 1024 * 1024  # of all packages together
    unpacked_bytes: int = 1024 * 1024 * 1024  # …of what is in them
    listen_seconds: float = 3.0
    payloads: int = 100  # of a channel
    pause_seconds: float = 1.0  # a change may be stated a moment after it has happened


SILENT = 3  # times that a host does not answer, each for as long as a connection may take


class Unjudged(Exception):
    """Why something could not be judged, or not to its end."""


class Asking:
    """Asks for what a Source names, until a host has not answered three times.

    What was not answered before is then what it was; the rest there is not asked for.
    """

    def __init__(self, web: Web) -> None:
        self.web = web
        self._unanswered = defaultdict[str, list[tuple[str, Unreachable]]](list)  # by host

    @asynccontextmanager
    async def ask(
        self, url: str, *, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Reply]:
        host = host_of(url)
        unanswered = self._unanswered[host]
        if len(unanswered) >= SILENT:
            message = f"it was not asked for: {host} has not answered {SILENT} times"
            raise dict(unanswered).get(url) or Unjudged(message)
        try:
            async with self.web.ask(url, headers=headers) as answer:
                if answer.status in TOKEN_NEEDED:
                    challenge = answer.headers.get("www-authenticate")
                    raise Unjudged(refused(url, answer.status, challenge=challenge).detail)
                yield answer
        except Unreachable as error:
            unanswered.append((url, error))
            raise
        unanswered.clear()


_T = TypeVar("_T")
ROUNDS = 4
LINKED_RELATIONS = {"describedby": "Core 14.5", "duplicate": "Core 14.2"}


class Sample(NamedTuple):
    """A resource as a list describes it, and at which moment."""

    loc: str
    hash: str | None
    length: int | None
    stated: Position


class LinkedResource(NamedTuple):
    """What a link leads to."""

    href: str
    relation: str
    document: str
    owner: str  # the resource that it is linked from; or nothing


# Choosing ---------------------------------------------------------------------------------------


def chosen(lists: Sequence[Sequence[Sample]], count: int) -> list[Sample]:
    """Some resources, up to a number, from the beginning to the end of each list."""
    lists = [found for found in lists if found]
    if not lists or count == 0:
        return []
    each = -(-count // len(lists))
    samples = {sample.loc: sample for found in lists for sample in _spread(found, each)}
    return list(samples.values())[:count]


def sampled(document: Document, count: int) -> list[Sample]:
    """Some resources of a document, up to a number."""
    if document.root != "urlset" or capability_of(document) not in ("resourcelist", "changelist"):
        return []
    at = position_of(document.md.at if document.md else None) or Position(0)
    newest = {entry.loc: change_of(entry) for entry in document.entries}
    return _spread([_sample(change, at) for change in newest.values() if _is_there(change)], count)


def linked_from(url: str, document: Document, count: int) -> list[LinkedResource]:
    """Some descriptions and duplicates that a document links to, its own first."""
    newest = {entry.loc: entry for entry in document.entries if entry.links or entry.md}
    there = (each for each in newest.values() if each.md is None or each.md.change != "deleted")
    links = chain(
        ((link, "") for link in document.links),
        ((link, joined(url, entry.loc)) for entry in there for link in entry.links),
    )
    web = (
        LinkedResource(href, link.rel, url, owner)
        for link, owner in links
        if link.rel in LINKED_RELATIONS
        and (href := joined(url, link.href)).startswith(("http://", "https://"))
    )
    return list(islice(web, count))


def linked(documents: Iterable[Sequence[LinkedResource]], count: int) -> list[LinkedResource]:
    """Some links of all documents, each once."""
    found = {link.href: link for links in documents for link in links}
    return list(found.values())[:count]


def _is_there(change: Change) -> bool:
    is_web = change.loc.startswith(("http://", "https://"))
    return is_web and change.change != "deleted" and bool(change.hash or change.length is not None)


def _sample(change: Change, at: Position) -> Sample:
    stated = position_of(change.datetime) or at
    return Sample(change.loc, change.hash, change.length, stated)


def _spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """The first, the last, and others between."""
    if count < 1 or len(samples) <= count:
        return list(samples)
    step = (len(samples) - 1) / max(1, count - 1)
    return [samples[round(number * step)] for number in range(count)]


# Looking ----------------------------------------------------------------------------------------


class Samples:
    """Resources that are fetched and compared."""

    def __init__(self, asking: Asking, changelists: Sequence[str], bounds: Bounds) -> None:
        self._asking = asking
        self._changelists = changelists
        self._bounds = bounds

    async def check(
        self, samples: Sequence[Sample], report: Callable[[Checked], None]
    ) -> list[Checked]:
        """What became of each; one that differs twice from the same description is wrong."""
        found = {each.loc: Checked(each.loc, RESOURCE) for each in samples}
        differing: dict[Sample, Violation] = {}

        async def look(sample: Sample) -> None:
            report(found[sample.loc])
            try:
                if (wrong := await self._difference(sample)) is not None:
                    differing[sample] = wrong
            except Unjudged as error:
                found[sample.loc].error = str(error)

        left, before = list(samples), set[Sample]()
        for number in range(ROUNDS):
            differing.clear()
            await _host_by_host(look, {each: each.loc for each in left})
            for each in differing.keys() & before:
                found[each.loc].violations.append(differing[each])
            before = differing.keys() - before
            if not before:
                return list(found.values())
            await asyncio.sleep(self._bounds.pause_seconds if number == 0 else 0)
            left = await self._described_anew(before)
        for each in left:
            found[each.loc].error = "it changes too often to be compared"
        return list(found.values())

    async def check_links(
        self, links: Sequence[LinkedResource], report: Callable[[Checked], None]
    ) -> list[Checked]:
        """Whether links lead somewhere, those of resources that are there."""
        found = {link: Checked(link.href, LINKED) for link in links}

        async def look(link: LinkedResource) -> None:
            checked = found[link]
            report(checked)
            try:
                why = await self._answer(link.href)
                if why == 200 or await self._answer(link.href) == 200:
                    return
                if link.owner and await self._answer(link.owner) != 200:
                    checked.note = "what links to it is gone, too"
                else:
                    checked.violations.append(_dead(link, why))
            except Unjudged as error:
                checked.error = str(error)

        await _host_by_host(look, {link: link.href for link in links})
        return list(found.values())

    async def _answer(self, url: str) -> int | str:
        """The status, or why there is none."""
        try:
            async with self._asking.ask(url) as answer:
                return answer.status
        except (Rejected, TryAgain) as error:
            return error.detail

    async def _difference(self, sample: Sample) -> Violation | None:
        """How it differs from what was stated."""
        check = Check(sample.length, sample.hash)
        try:
            async with self._asking.ask(sample.loc) as answer:
                if answer.status != 200:
                    return _gone(f"the answer is {answer.status}")
                async for piece in answer.pieces():
                    check.update(piece)
                    if check.length > self._bounds.sample_bytes:
                        raise Unjudged(f"it has more than {self._bounds.sample_bytes} bytes")
        except (Rejected, TryAgain) as error:
            return _gone(error.detail)
        wrong = check.problem()
        return _wrong(wrong) if wrong else None

    async def _described_anew(self, samples: Iterable[Sample]) -> list[Sample]:
        """The same as the Change Lists describe them now; those that were deleted are left out."""
        newest: dict[str, Sample | None] = {each.loc: each for each in samples}
        begin = min(each.stated for each in newest.values() if each)
        for url in self._changelists:
            with suppress(Rejected, TryAgain, HistoryGone):  # what cannot be read was named already
                try:
                    await self._follow(url, begin, newest)
                except HistoryGone as gone:  # the oldest may be another set's
                    await self._follow(url, gone.begins, newest)
        return [each for each in newest.values() if each is not None]

    async def _follow(self, url: str, begin: Position, newest: dict[str, Sample | None]) -> None:
        async with aclosing(ChangeLists(self._asking.web, url).after(begin)) as stretches:
            async for received in stretches:
                for stated, change in zip(received.positions, received.changes, strict=True):
                    known = newest.get(change.loc)
                    if change.loc not in newest or (known and stated <= known.stated):
                        continue
                    sample = Sample(change.loc, change.hash, change.length, stated)
                    newest[change.loc] = None if change.change == "deleted" else sample


async def _host_by_host(look: Callable[[_T], Awaitable[None]], found: Mapping[_T, str]) -> None:
    """Look at these, by address: at one host in turn, at all hosts at the same time."""
    hosts = defaultdict[str, list[_T]](list)
    for each, url in found.items():
        hosts[host_of(url)].append(each)

    async def in_turn(there: Iterable[_T]) -> None:
        for each in there:
            await look(each)

    await asyncio.gather(*map(in_turn, hosts.values()))


def _dead(link: LinkedResource, why: int | str) -> Violation:
    why = f"the answer is {why}" if isinstance(why, int) else why
    message = f"{link.document} links to it as {link.relation}, but {why}"
    advice = "Let the link lead to what it says, or remove it."
    return Violation(LINKED_RELATIONS[link.relation], "/", message, advice)


def _gone(detail: str) -> Violation:
    return Violation("Core 7", "/", detail, "Serve it, or list it no longer.")


def _wrong(detail: str) -> Violation:
    advice = "Announce the change, or the hash and the length that it has."
    return Violation("Core 7", "/", detail, advice)
