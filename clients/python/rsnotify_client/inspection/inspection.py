"""Inspects a whole Source: discovery, documents, channels, samples of its resources."""

import asyncio
from collections.abc import Callable

import msgspec

from rsnotify_client.inspection.channels import checked_channel
from rsnotify_client.inspection.checked import Bounds, Checked
from rsnotify_client.inspection.documents import Documents
from rsnotify_client.inspection.relations import channels_in, named_in
from rsnotify_client.inspection.samples import Samples, chosen
from rsnotify_client.inspection.ways import Ways
from rsnotify_client.web import Web

Report = Callable[[Checked], None]


class Inspection(msgspec.Struct):
    """All that was looked at, and how many documents were not, because of the bounds."""

    site: str
    checked: list[Checked]
    beyond: int = 0

    @property
    def violations(self) -> int:
        return sum(len(each.violations) for each in self.checked)


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
        documents = Documents(web, bounds, report)
        ways = Ways(web, documents, report)
        await ways.look(url)
        await documents.walk()
        checked = [*ways.checked, *documents.checked.values()]
        channels = (checked_channel(web, *each, bounds) for each in _channels(documents))
        checked += await asyncio.gather(*channels)
        samples = Samples(web, _change_lists(documents), bounds)
        checked += await samples.check(chosen(documents.read.values(), bounds.samples), report)
    return Inspection(url, checked, documents.beyond)


def _channels(documents: Documents) -> dict[tuple[str, str], None]:
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
