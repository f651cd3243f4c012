"""What dumps cost: beside `zip -0` over the same files, and beside a mirror that fetches each.

The Source answers after so many milliseconds, as one far away does.
"""

import asyncio
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_mirror.mirror import AsyncMirror
from tests.support.sources import CAPABILITIES, Source, rendered

RESOURCES, BYTES, TURNS = 20_000, 5_000, 5
CHANGED = RESOURCES // 100
LATENCY_SECONDS = 0.005
DUMP = """
import re, sys, time
from pathlib import Path
from rsnotify_mirror.dumping.dump import DumpOptions, make
from rsnotify_mirror.dumping.generations import DumpFolder
began = time.perf_counter()
with DumpFolder(Path(sys.argv[2])) as folder:
    options = DumpOptions(sys.argv[3], makes_change_dumps=True, keep=1)
    made = make(Path(sys.argv[1]), folder, options)
seconds = time.perf_counter() - began
assert made.generation
print(seconds, int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024)
"""


def dumped(copy: Path, out: Path, base: str) -> tuple[float, float]:
    """Seconds, without the start of the interpreter, and MB."""
    command = [sys.executable, "-c", DUMP, str(copy), str(out), base]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak = map(float, done.stdout.split())
    return seconds, peak


def zipped(copy: Path, file: Path) -> float:
    folder = next(path for path in copy.iterdir() if path.is_dir())
    began = time.perf_counter()
    subprocess.run(["zip", "-0", "-q", "-r", file, folder], check=True)
    seconds = time.perf_counter() - began
    file.unlink()
    return seconds


class Far(Source):
    """A Source that is some milliseconds away."""

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(LATENCY_SECONDS)
        return await super()._serve(request)


async def mirrored(source: Source, copy: Path) -> float:
    began = time.perf_counter()
    async with AsyncMirror(source.url + CAPABILITIES, copy) as mirror:
        assert await mirror.once()
    return time.perf_counter() - began


async def measured(folder: Path) -> None:
    chance, copy, out = random.Random(1), folder / "copy", folder / "out"
    async with Far() as source:
        base = f"{source.url}/dumps/"
        for number in range(RESOURCES):
            source.add(f"{number // 500:03}/r{number}.bin", chance.randbytes(BYTES))
        source.list_resources()
        alone = await mirrored(source, copy)
        firsts, others, peaks = [], [], []
        for _ in range(TURNS):
            shutil.rmtree(out, ignore_errors=True)
            seconds, peak = await asyncio.to_thread(dumped, copy, out, base)
            firsts.append(seconds)
            peaks.append(peak)
            others.append(await asyncio.to_thread(zipped, copy, folder / "a.zip"))
        row("first dump", firsts, "`zip -0`", others)
        nexts = []
        for _ in range(TURNS):
            for number in chance.sample(range(RESOURCES), CHANGED):
                source.change(f"{number // 500:03}/r{number}.bin", chance.randbytes(BYTES))
            await mirrored(source, copy)
            seconds, peak = await asyncio.to_thread(dumped, copy, out, base)
            nexts.append(seconds)
            peaks.append(peak)
        row(f"next dump, {CHANGED} changed", nexts, "the first", firsts)
        serve(source, out)
        begun = await mirrored(source, folder / "begun")
        row("mirror begun with a dump", [begun], "each alone, 5 ms away", [alone])
        print(f"| memory of a dump, most | {max(peaks):.0f} MB | | |")


def serve(source: Source, out: Path) -> None:
    """The dumps, at the Source; its lists are of the time of the last one."""
    for path in out.rglob("*"):
        if path.is_file():
            source.handlers[f"/dumps/{path.relative_to(out)}"] = sends(path)
    entries = [
        Entry(f"{source.url}/{where}.xml", md=Md(capability=where.rpartition("/")[2]))
        for where in ("resourcelist", "changelist", "dumps/resourcedump")
    ]
    source.list_resources()
    source.documents[CAPABILITIES] = rendered("capabilitylist", entries)


def sends(path: Path) -> Callable[[web.Request], object]:
    async def send(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(LATENCY_SECONDS)
        return web.FileResponse(path)

    return send


def row(what: str, ours: list[float], other: str, theirs: list[float]) -> None:
    mine, their = statistics.median(ours), statistics.median(theirs)
    print(f"| {what} | {mine:.2f} s | {other}: {their:.2f} s | {their / mine:.2f} |", flush=True)


def main() -> None:
    if shutil.which("zip") is None:
        print("zip is not installed: nothing is measured")
        return
    print(f"{RESOURCES:,} resources of {BYTES:,} bytes; {os.cpu_count()} cores\n")
    print("| what | rsnotify | beside | times as fast |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(Path(folder)))
