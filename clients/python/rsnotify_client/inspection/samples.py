"""Some resources of a Source, held against the hash and the length that its lists tell.

Rules that hold here: a resource that differs is a violation only if no Change List tells of a
change since: it is looked at again, and the lists are read again. So a Source may change meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from typing import NamedTuple

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.validation.entry_rules import Violation
from rsnotify.resourcesync.xml_reader import change_of
from rsnotify.resourcesync.xml_writer import Document
from rsnotify_client.changelists import ChangeLists, HistoryGone
from rsnotify_client.inspection.checked import RESOURCE, Bounds, Checked
from rsnotify_client.inspection.relations import capability_of
from rsnotify_client.mirror.plan import checker
from rsnotify_client.notification import position_of
from rsnotify_client.web import Web

ROUNDS = 4


class Sample(NamedTuple):
    """A resource as a list tells of it, and of which moment the list speaks."""

    loc: str
    hash: str | None
    length: int | None
    told: Position


# Choosing ---------------------------------------------------------------------------------------


def chosen(documents: Iterable[Document], count: int) -> list[Sample]:
    """So many resources at most, from the beginning to the end of each list."""
    lists = [found for document in documents if (found := _listed(document))]
    if not lists or count == 0:
        return []
    each = -(-count // len(lists))
    samples = {sample.loc: sample for found in lists for sample in _spread(found, each)}
    return list(samples.values())[:count]


def _listed(document: Document) -> list[Sample]:
    if document.root != "urlset" or capability_of(document) not in ("resourcelist", "changelist"):
        return []
    at = position_of(document.md.at if document.md else None) or Position(0)
    newest = {entry.loc: change_of(entry) for entry in document.entries}
    return [_sample(change, at) for change in newest.values() if _is_there(change)]


def _is_there(change: Change) -> bool:
    is_web = change.loc.startswith(("http://", "https://"))
    return is_web and change.change != "deleted" and bool(change.hash or change.length is not None)


def _sample(change: Change, at: Position) -> Sample:
    told = position_of(change.datetime) or at
    return Sample(change.loc, change.hash, change.length, told)


def _spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """The first, the last, and others between."""
    if len(samples) <= count:
        return list(samples)
    step = (len(samples) - 1) / max(1, count - 1)
    return [samples[round(number * step)] for number in range(count)]


# Looking ----------------------------------------------------------------------------------------


class Samples:
    """Resources that are fetched and compared."""

    def __init__(self, web: Web, changelists: Sequence[str], bounds: Bounds) -> None:
        self._web = web
        self._changelists = changelists
        self._bounds = bounds

    async def check(
        self, samples: Sequence[Sample], report: Callable[[Checked], None]
    ) -> list[Checked]:
        """What became of each; one that differs twice from the same telling is wrong."""
        found = {each.loc: Checked(each.loc, RESOURCE) for each in samples}
        left, before = list(samples), set[Sample]()
        for number in range(ROUNDS):
            differing: dict[Sample, str] = {}
            for each in left:
                report(found[each.loc])
                if (why := await self._difference(each)) is not None:
                    differing[each] = why
            for each in differing.keys() & before:
                found[each.loc].violations.append(_wrong(differing[each]))
            before = differing.keys() - before
            if not before:
                return list(found.values())
            await asyncio.sleep(self._bounds.pause_seconds if number == 0 else 0)
            left = await self._told_since(before)
        for each in left:
            found[each.loc].error = "it changes too often to be compared"
        return list(found.values())

    async def _difference(self, sample: Sample) -> str | None:
        """In what it is not as told."""
        has = checker(sample.hash)
        try:
            async with self._web.ask(sample.loc) as answer:
                if answer.status != 200:
                    return f"the answer is {answer.status}"
                length = 0
                async for piece in answer.pieces():
                    length += len(piece)
                    if length > self._bounds.sample_bytes:
                        return None  # too long to be compared
                    if has is not None:
                        has[1].update(piece)
        except (Rejected, TryAgain) as error:
            return error.detail
        if sample.length is not None and length != sample.length:
            return f"it has {length} bytes, {sample.length} were told"
        if has is not None and has[1].hexdigest() != has[2]:
            return f"its {has[0]} is {has[1].hexdigest()}, {has[2]} was told"
        return None

    async def _told_since(self, samples: Iterable[Sample]) -> list[Sample]:
        """The same as the Change Lists tell of them now; those that were deleted are left out."""
        newest: dict[str, Sample | None] = {each.loc: each for each in samples}
        begin = min(each.told for each in newest.values() if each)
        for url in self._changelists:
            try:
                await self._follow(url, begin, newest)
            except (Rejected, TryAgain, HistoryGone):
                continue  # a list that cannot be read was named already
        return [each for each in newest.values() if each is not None]

    async def _follow(self, url: str, begin: Position, newest: dict[str, Sample | None]) -> None:
        async with aclosing(ChangeLists(self._web, url).after(begin)) as stretches:
            async for received in stretches:
                for told, change in zip(received.positions, received.changes, strict=True):
                    known = newest.get(change.loc)
                    if change.loc not in newest or (known and told <= known.told):
                        continue
                    is_there = change.change != "deleted"
                    sample = Sample(change.loc, change.hash, change.length, told)
                    newest[change.loc] = sample if is_there else None


def _wrong(detail: str) -> Violation:
    mend = "Tell of the change, or tell the hash and the length that it has."
    return Violation("Core 7", "/", detail, mend)
