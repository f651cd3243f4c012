"""Inspects a whole Source: discovery, documents, channels, samples of its resources."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from rsnotify_client.web import Web
from rsnotify_mirror.inspection.channels import checked_channel
from rsnotify_mirror.inspection.checked import Bounds, Checked, counted
from rsnotify_mirror.inspection.contents import Contents, Found
from rsnotify_mirror.inspection.documents import Documents
from rsnotify_mirror.inspection.packages import Packages
from rsnotify_mirror.inspection.relations import NamedChannel, channels_in, named_in
from rsnotify_mirror.inspection.samples import Samples, chosen, linked
from rsnotify_mirror.inspection.ways import Ways

Report = Callable[[Checked], None]


class Inspection(msgspec.Struct):
    """All that was looked at, and what was not, because of the bounds."""

    site: str
    checked: list[Checked]
    beyond: int = 0  # documents
    unchecked: list[str] = []

    @property
    def violations(self) -> int:
        return sum(len(each.violations) for each in self.checked)

    @property
    def is_right(self) -> bool:
        """Whether nothing is wrong, and all could be judged."""
        return not self.violations and not self.unchecked


async def inspect(
    url: str,
    *,
    token: str | None = None,
    bounds: Bounds | None = None,
    report: Report = lambda _: None,
) -> Inspection:
    """The Source that the address leads to; `report` hears of each step as it is done.

    Raises `Rejected` or `TryAgain` if the address itself cannot be read.
    """
    bounds = bounds or Bounds()
    async with Web(token, url) as web:
        walk = await _walked(web, url, bounds, report)
        if walk.documents.relations:
            await asyncio.sleep(bounds.pause_seconds)
            again = await _walked(web, url, bounds, report)
            again.keep_only(walk.documents.relations)
            walk = again
        documents, checked = walk.documents, walk.checked()
        channels = (checked_channel(web, each, bounds) for each in _channels(documents))
        checked += await asyncio.gather(*channels)
        samples = Samples(web, _change_lists(documents), bounds)
        checked += await samples.check(chosen(documents.samples, bounds.samples), report)
        checked += await samples.check_links(linked(documents.links, bounds.links), report)
    return Inspection(url, checked, documents.beyond, _unchecked(walk, checked))


class _Walk(NamedTuple):
    """A Source's documents and packages, as they were read one after another."""

    ways: Ways
    documents: Documents
    packages: Sequence[Checked]
    unopened: int

    def keep_only(self, before: Sequence[Found]) -> None:
        """A Source changes while it is looked at: what does not fit twice is wrong."""
        known = {(url, each.clause, each.path) for url, each in before}
        relations = self.documents.relations
        relations[:] = [
            (url, each) for url, each in relations if (url, each.clause, each.path) in known
        ]

    def checked(self) -> list[Checked]:
        found = {each.document: each for each in self.packages} | self.documents.checked
        for url, violation in self.documents.relations:
            found[url].violations.append(violation)
        return [*self.ways.checked, *self.documents.checked.values(), *self.packages]


async def _walked(web: Web, url: str, bounds: Bounds, report: Report) -> _Walk:
    with Contents() as contents:
        documents = Documents(web, bounds, report, contents)
        ways = Ways(web, documents, report)
        await ways.look(url)
        await documents.walk()
        packages = Packages(web, documents, contents, bounds)
        checked = await packages.check()
        documents.look_at_all()
    return _Walk(ways, documents, checked, packages.unopened)


def _unchecked(walk: _Walk, checked: Sequence[Checked]) -> list[str]:
    """What could not be judged, and why."""
    found = [
        f"{each.document}: {each.error.removeprefix(f'{each.document}: ')}"
        for each in checked
        if each.error
    ]
    if walk.documents.beyond:
        count = counted(walk.documents.beyond, "document")
        found.append(f"{count} beyond the limits: see --documents")
    if walk.unopened:
        found.append(f"{counted(walk.unopened, 'package')} not opened: see --packages")
    return found


def _channels(documents: Documents) -> Iterable[NamedChannel]:
    found = (
        each for url, document in documents.read.items() for each in channels_in(url, document)
    )
    return dict.fromkeys(found)


def _change_lists(documents: Documents) -> list[str]:
    """What Capability Lists name as such."""
    named = (
        each
        for url, document in documents.read.items()
        if (document.md and document.md.capability) == "capabilitylist"
        for each in named_in(url, document)
    )
    return list(dict.fromkeys(each.url for each in named if each.capability == "changelist"))
