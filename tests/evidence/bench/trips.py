"""Through how many files of the hub a trip passes: whoever follows a change has to open each.

`python -m tests.evidence.bench.trips NAME`: which ones these are, of the trip of that name.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from pathlib import Path
from signal import SIGUSR1

import aiohttp
from websockets.asyncio.client import connect

from tests.support.receivers import Receiver, has, subscribe
from tests.support.running import RunningHub, until

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


async def measure(folder: Path) -> dict[str, set[str]]:
    """The files of each trip."""
    async with (
        TracedHub(folder / "data", callback_private="allow") as hub,
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
    return {
        name: {file for file in files if not file.startswith(BESIDE[name])}
        for name, files in trips.items()
    }


def main(names: Sequence[str] = ()) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACE"] = str(Path(folder, "trace"))
        trips = asyncio.run(measure(Path(folder)))
    print("| trip | files of the hub |\n|---|---:|")
    for trip, files in trips.items():
        print(f"| {trip} | {len(files)} |")
    for name in names:
        print(f"\n{name}:", *sorted(trips[name]), sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
