"""Through how many files of the hub a trip passes: whoever follows a change has to open each."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from signal import SIGUSR1

import aiohttp
import pytest
from websockets.asyncio.client import connect

from tests.support.receivers import Receiver, has, subscribe
from tests.support.running import RunningHub, until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.evidence]

CEILINGS = {"publish": 24, "list": 22, "callback": 30}
REPETITIONS = 8  # a trip's own files are in each; those of the loops beside it only in some…
BESIDE = {"publish": ("documents/", "websub/"), "list": ("websub/",), "callback": ("documents/",)}
"""…but on a busy machine, where a loop of these rooms may have its turn in each."""

TRACED = """
import os, signal, sys
import rsnotify.__main__ as command
ROOM = os.path.dirname(command.__file__) + os.sep
seen, place = set(), os.environ['TRACE']
def trace(frame, event, _):
    name = frame.f_code.co_filename
    if event == 'call' and name.startswith(ROOM):
        seen.add(name[len(ROOM):])
def write(*_):
    with open(place + '.new', 'w') as file:
        file.write('\\n'.join(sorted(seen)))
    seen.clear()
    os.rename(place + '.new', place)
signal.signal(signal.SIGUSR1, write)
sys.setprofile(trace)
command.main()
"""


class TracedHub(RunningHub):
    """A hub that says which of its files were used since it said so last."""

    program = ("-c", TRACED)

    async def used(self) -> set[str]:
        place = self.data.with_name("trace")
        place.unlink(missing_ok=True)
        self.process.send_signal(SIGUSR1)

        async def written() -> bool:
            return place.exists()

        await until(written)
        return {*place.read_text().split()}

    async def trip(self, act: Callable[[], Awaitable[object]]) -> set[str]:
        await act()  # the first is not like the others
        files = []
        for _ in range(REPETITIONS):
            await self.used()
            await act()
            files.append(await self.used())
        return set.intersection(*files)


async def test_a_trip_passes_through_few_files(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACE", str(tmp_path / "trace"))
    async with (
        TracedHub(tmp_path / "data", callback_private="allow") as hub,
        Receiver() as receiver,
        aiohttp.ClientSession() as session,
    ):
        numbers = count()

        async def publish() -> None:
            await hub.publish(f"http://example.com/{next(numbers)}")

        async def pull() -> None:
            async with session.get(f"{hub.url}/dataset1/changelist.xml") as answer:
                assert b"<url>" in await answer.read()

        async def call() -> None:
            delivered = len(receiver.deliveries)
            await publish()
            await has(receiver, delivered + 1)
            await asyncio.sleep(0.05)  # until the answer is noted

        async with connect(hub.channel()) as reader:

            async def push() -> None:
                await publish()
                await reader.recv()

            trips = {"publish": await hub.trip(push)}
        trips["list"] = await hub.trip(pull)
        await subscribe(hub, receiver)
        trips["callback"] = await hub.trip(call)
    for name, used in trips.items():
        files = {file for file in used if not file.startswith(BESIDE[name])}
        assert len(files) <= CEILINGS[name], f"{name}: {sorted(files)}"
