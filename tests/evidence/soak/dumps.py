"""Random changes, and kills of the mirror, of `rsnotify dump`, and of a Destination of the dumps.

    a Source ── mirror ── copy ── dump ── ZIPs ── a Destination, which has nothing but dumps

Each is killed at random moments. At each rest the first Resource Dump and all Change Dumps since
are the Source byte for byte, and so are the newest Resource Dump and the Destination's copy.
`SOAK_SECONDS=3600 make soak SOAK_ARGS=dumps` makes it last; `SOAK_SEED` chooses another order.
"""

import asyncio
import os
import random
import signal
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_mirror.dumping.dump import DumpOptions, make
from rsnotify_mirror.dumping.generations import DumpFolder
from rsnotify_mirror.dumping.parts import Limits
from tests.evidence.soak.mirror_killed import Running, once
from tests.support.children import begun, in_child
from tests.support.sources import CAPABILITIES, Source, rendered

SECONDS = 300.0
RESOURCES = 200
SIZES = (*(9, 900) * 20, 2**21)  # few are long: what is kept must fit on a disk
KEEP = 50  # more than there are dumps between two rests
LONGEST_SECONDS = 0.3
OF_DUMPS = "/dumps/capabilitylist.xml"
State = dict[str, bytes]


class DumpingSource(Source):
    """A Source that also serves what is in a folder, as it is at each moment."""

    out = Path()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        file = self.out / request.path.removeprefix("/dumps/")
        if request.path.startswith("/dumps/") and file.is_file():
            return web.FileResponse(file)
        return await super()._serve(request)


class Story(NamedTuple):
    """All that takes part."""

    running: Running
    folder: Path
    chance: random.Random

    @property
    def url(self) -> str:
        return self.running.source.url

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def mirror(self) -> None:
        assert asyncio.run(once(self.url + CAPABILITIES, self.folder / "copy"))

    def dump(self) -> None:
        options = DumpOptions(
            f"{self.url}/dumps/", Limits(300_000, 60), makes_change_dumps=True, keep=KEEP
        )
        with DumpFolder(self.out) as folder:
            make(self.folder / "copy", folder, options)

    def follow(self) -> None:
        assert asyncio.run(once(self.url + OF_DUMPS, self.folder / "destination"))


def to_its_end(act: Callable[[], None]) -> None:
    assert in_child(act) == 0


def at_once(acts: list[Callable[[], None]], chance: random.Random) -> int:
    """Each in a process of its own, beside the others; how many were killed before their end."""
    running = [(begun(act, says=False), chance.random() * LONGEST_SECONDS) for act in acts]
    began, kills = time.monotonic(), 0
    for child, seconds in sorted(running, key=lambda each: each[1]):
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        os.kill(child, signal.SIGKILL)
        kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    return kills


def main() -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", SECONDS))
    print(proven(seconds, os.environ.get("SOAK_SEED", "dumps"), RESOURCES))


def proven(seconds: float, seed: str, resources: int) -> str:
    """What was found."""
    running, chance = Running(resources, SIZES), random.Random(seed)
    source = DumpingSource()
    running.source = source
    with tempfile.TemporaryDirectory() as name:
        source.out = Path(name, "out")
        running.start()
        running.ready.wait()
        story = Story(running, Path(name), chance)
        _begin(story)
        return _told(story, time.monotonic() + seconds)


def _begin(story: Story) -> None:
    """Two dumps, so that there is a Change Dump, too."""
    for act in (story.mirror, story.dump):
        to_its_end(act)
    _change(story)
    for act in (story.mirror, story.dump):
        to_its_end(act)
    entries = [
        Entry(f"{story.url}/dumps/{each}.xml", md=Md(capability=each))
        for each in ("resourcedump", "changedump")
    ]
    story.running.source.documents[OF_DUMPS] = rendered("capabilitylist", entries)


def _told(story: Story, ends: float) -> str:
    kills, rests, told, state = 0, 0, "", State()
    acts = (story.mirror, story.dump, story.follow)
    while not rests or time.monotonic() < ends:
        for _ in range(story.chance.randint(3, 12)):
            _change(story)
            chosen = story.chance.sample(acts, story.chance.randint(1, 3))
            kills += at_once(chosen, story.chance)
        for act in acts:
            to_its_end(act)
        rests += 1
        source = _source(story)
        told, state = _changed_since(story, told, state)
        _compare("the Change Dumps lead to", state, source)
        newest = _packages(story.out / "resourcedump.xml", story)
        _compare("the Resource Dump has", _applied(newest, State()), source)
        _compare("the Destination has", _copied(story), source)
    return f"killed {kills} times, the same at {rests} rests; {len(state)} resources"


def _change(story: Story) -> None:
    """Made before anybody looks."""
    story.running.change(story.chance)
    done = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), story.running.loop)
    done.result()


def _source(story: Story) -> State:
    return {story.url + path: body for path, body in story.running.source.resources.items()}


def _copied(story: Story) -> State:
    copy, host = story.folder / "destination", story.url.removeprefix("http://")
    return {
        f"http://{path.relative_to(copy)}": path.read_bytes()
        for path in (copy / host).rglob("*")
        if path.is_file()
    }


def _changed_since(story: Story, told: str, state: State) -> tuple[str, State]:
    """All generations after this one: the first as a baseline, the others as changes."""
    for folder in sorted((story.out / "generations").iterdir()):
        if folder.name > told:
            document = folder / ("changes.xml" if told else "resourcedump.xml")
            state, told = _applied(_packages(document, story), state), folder.name
    return told, state


def _packages(document: Path, story: Story) -> list[Path]:
    base = f"{story.url}/dumps/"
    entries = parse_document(document.read_bytes()).entries
    return [story.out / entry.loc.removeprefix(base) for entry in entries]


def _applied(packages: list[Path], state: State) -> State:
    found = dict(state)
    for package in packages:
        with zipfile.ZipFile(package) as file:
            for entry in parse_document(file.read("manifest.xml")).entries:
                assert entry.md
                if entry.md.change == "deleted":
                    found.pop(entry.loc, None)
                else:
                    found[entry.loc] = file.read((entry.md.path or "").lstrip("/"))
    return found


def _compare(what: str, found: State, source: State) -> None:
    wrong = {loc for loc in found.keys() | source.keys() if found.get(loc) != source.get(loc)}
    assert not wrong, (what, len(wrong), sorted(wrong)[:5])


if __name__ == "__main__":
    main()
