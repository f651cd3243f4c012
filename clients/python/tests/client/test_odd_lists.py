"""Five read a list with its index, parts and pages: a mirror, a bridge, `between`, a follower of
Change Lists, and the validator. They judge it alike, and none is wrong in silence."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from clients.python.tests.mirror.odd import MirroredSource
from clients.python.tests.mirror.test_mirror import files
from rsnotify.errors import Rejected, TryAgain
from rsnotify_bridge.polite import Hosts, PoliteWeb
from rsnotify_bridge.sources import ListedSource
from rsnotify_client.between import entries_of
from rsnotify_client.changelists import ChangeLists
from rsnotify_client.discovery import discover
from rsnotify_client.network import Network
from rsnotify_client.web import Web
from rsnotify_mirror.inspection.inspection import inspect
from rsnotify_mirror.inspection.samples import Bounds
from tests.support.odd import NAMES, OddSource
from tests.support.odd_lists import LIES, RIGHT, Case, ChangingSource, DeclaredSource
from tests.support.sources import Source


class Reading(NamedTuple):
    """What somebody has read of a list, and what they say could not be read."""

    names: set[str]
    said: list[str]


Reader = Callable[[Source, Path, Case], Awaitable[Reading]]


def name_of(loc: str) -> str:
    return loc.rpartition("/")[2]


async def mirror(source: Source, copy: Path, case: Case) -> Reading:
    odd = MirroredSource(source, copy, "odd")
    case(odd)
    ran = await odd.look()
    assert ran.is_whole == (not ran.problems().strip())
    return Reading(
        {name_of(path) for path in files(copy)}, [ran.problems()] if ran.problems().strip() else []
    )


async def bridge(source: Source, _: Path, case: Case) -> Reading:
    odd = OddSource[Any](source, "odd")
    case(odd)
    names, said = set[str](), list[str]()
    async with PoliteWeb(None, odd.address, Network(), Hosts()) as web:
        try:
            listed = ListedSource(web, await discover(web, odd.address))
            async for piece in listed.state():
                names |= {name_of(loc) for loc, _ in piece.entries}
            said += listed.skipped
        except (Rejected, TryAgain) as error:
            said.append(error.detail)
    return Reading(names, said)


async def between(source: Source, _: Path, case: Case) -> Reading:
    odd = OddSource[Any](source, "odd")
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


async def change_lists(source: Source, _: Path, case: Case) -> Reading:
    odd = ChangingSource(source, "odd")
    case(odd)
    names, said = set[str](), list[str]()
    async with Web(None, odd.address) as web:
        try:
            async for received in ChangeLists(web, odd.address, skip=said.append).after(None):
                names |= {name_of(change.loc) for change in received.changes}
        except (Rejected, TryAgain) as error:
            said.append(error.detail)
    return Reading(names, said)


async def validator(source: Source, _: Path, case: Case) -> Reading:
    """It keeps no names: what it does not complain of it has read."""
    odd = DeclaredSource(source, "odd")
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
async def source() -> AsyncIterator[Source]:
    async with Source() as made:
        yield made


def named(each: Any) -> str:
    return str(each.__name__)


@pytest.mark.parametrize("reader", READERS, ids=named)
@pytest.mark.parametrize("case", RIGHT, ids=named)
async def test_of_a_list_that_is_odd_all_is_read(source, tmp_path, case, reader):
    reading = await reader(source, tmp_path / "copy", case)
    assert [each for each in reading.said if not STRICTER.search(each)] == []
    assert reading.names == {*NAMES}


@pytest.mark.parametrize("reader", READERS, ids=named)
@pytest.mark.parametrize("case", LIES, ids=named)
async def test_what_cannot_be_read_to_its_end_is_said(source, tmp_path, case, reader):
    reading = await reader(source, tmp_path / "copy", case)
    assert re.search(LIES[case], " ".join(reading.said)), reading.said
