"""Five read a list with its index, parts and pages: a mirror, a bridge, `between`, a follower of
Change Lists, and the validator. They judge it alike, and none is wrong in silence."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clients.python.tests.bridge.bridging import Bridging
from clients.python.tests.bridge.odd import BridgedSource
from clients.python.tests.mirror.odd import MirroredSource
from clients.python.tests.mirror.test_mirror import files
from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.between import entries_of
from rsnotify_client.changelists import ChangeLists
from rsnotify_client.web import Web
from rsnotify_mirror.inspection.inspection import inspect
from rsnotify_mirror.inspection.samples import Bounds
from tests.support.amount import enough
from tests.support.hub_processes import HubProcess
from tests.support.odd import NAMES, OddSource, named
from tests.support.odd_lists import CASES, Case, ChangingSource, DeclaredSource
from tests.support.sources import Source


class Reading(NamedTuple):
    """What somebody has read of a list, and what they say could not be read."""

    names: set[str]
    said: list[str]


class Place(NamedTuple):
    """Where a list is, and what reads it."""

    source: Source
    folder: Path
    hub: HubProcess
    name: str  # of a set that nobody else has


Reader = Callable[[Place, Case], Awaitable[Reading]]


def name_of(loc: str) -> str:
    return loc.rpartition("/")[2]


async def mirror(place: Place, case: Case) -> Reading:
    """Of a lie it keeps what it had, and does not call the copy whole; an audit sees it, too."""
    odd = MirroredSource(place.source, place.folder / "copy", "odd")
    await after_a_good_one(odd, case)
    ran = await odd.look()
    said = ran.problems().strip()
    assert ran.is_whole == (not said)
    assert odd.is_equal()
    assert (await odd.audit()).is_in_sync == ran.is_whole
    return Reading({name_of(path) for path in files(odd.copy)}, [said] if said else [])


async def bridge(place: Place, case: Case) -> Reading:
    """Of a lie it calls nothing deleted, and is not in step."""
    place.hub.add_set(place.name)
    bridging = Bridging(place.hub, place.name, place.folder / "bridge.db")
    odd = BridgedSource(place.source, bridging, "odd")
    await after_a_good_one(odd, case)
    facts = await odd.look()
    odd.check_state()
    said = [*filter(None, (facts.error, facts.held, facts.skipped))]
    assert facts.is_well == (not said)
    return Reading({name_of(loc) for loc in bridging.resources()}, said)


async def after_a_good_one(odd: OddSource[Any], case: Case) -> None:
    """A lie comes after a list of the same that was whole."""
    if case in CASES.said:
        odd.write(odd.sitemap())
        await odd.look()
    case(odd)


async def between(place: Place, case: Case) -> Reading:
    odd = OddSource[Any](place.source, "odd")
    case(odd)

    def read() -> Reading:
        names = set[str]()
        try:
            for entry in entries_of(odd.address):
                names.add(name_of(entry.loc))
        except (Rejected, TryAgain) as error:
            return Reading(names, [error.detail])
        return Reading(names, [])

    return await asyncio.to_thread(read)


async def change_lists(place: Place, case: Case) -> Reading:
    odd = ChangingSource(place.source, "odd")
    case(odd)
    names, said = set[str](), list[str]()
    async with Web(None, odd.address) as web:
        try:
            async for received in ChangeLists(web, odd.address, skip=said.append).after(None):
                names |= {name_of(change.loc) for change in received.changes}
        except (Rejected, TryAgain) as error:
            said.append(error.detail)
    return Reading(names, said)


async def validator(place: Place, case: Case) -> Reading:
    """It keeps no names: what it does not complain of it has read."""
    odd = DeclaredSource(place.source, "odd")
    case(odd)
    bounds = Bounds(samples=0, listen_seconds=0.01, pause_seconds=0)
    found = await inspect(odd.address, bounds=bounds)
    said = [each.message for checked in found.checked for each in checked.violations]
    said += [checked.error for checked in found.checked if checked.error]
    return Reading({*NAMES}, [*said, *found.unchecked])


STRICTER = re.compile("^up is missing|^(href|rel) is|already$|is an index, too")
"""What the validator says of lists that everybody can read."""

READERS: list[Reader] = [mirror, bridge, between, change_lists, validator]


@pytest.fixture
async def place(
    tmp_path: Path, real_hub: HubProcess, request: pytest.FixtureRequest
) -> AsyncIterator[Place]:
    name = f"form-{request.node.callspec.id.replace('_', '-')}"[:60].rstrip("-")
    async with Source() as source:
        yield Place(source, tmp_path, real_hub, name)


@pytest.mark.parametrize("reader", enough(READERS, 2), ids=named)
@pytest.mark.parametrize("case", CASES.are_right, ids=named)
async def test_of_a_list_that_is_odd_all_is_read(place, case, reader):
    reading = await reader(place, case)
    assert [each for each in reading.said if not STRICTER.search(each)] == []
    assert reading.names == {*NAMES}


@pytest.mark.parametrize("reader", enough(READERS, 2), ids=named)
@pytest.mark.parametrize("case", CASES.said, ids=named)
async def test_what_cannot_be_read_to_its_end_is_said(place, case, reader):
    reading = await reader(place, case)
    assert re.search(CASES.said[case], " ".join(reading.said)), reading.said
