"""The page over a line that is cut: what was published meanwhile comes, once and in order.

The hub is that of the wheel, started from an empty folder: the page follows it with the JavaScript
client that the wheel carries.
"""

import asyncio
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Self

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import opened
from tests.support.running import RunningHub
from tests.support.stream_server import StreamServer
from tests.tools.release import ROOT, unpacked

pytestmark = pytest.mark.asyncio(loop_scope="session")

CHUNK_BYTES = 65536
MARK = "\nglobalThis.isOfTheWheel = true;\n"  # in the file that the page imports


class HubOfWheel(RunningHub):
    """A hub that runs what was installed, not what lies in the clone."""

    def __init__(self, data: Path, wheel: Path) -> None:
        super().__init__(data)
        _, self._place = unpacked(wheel, data.parent)
        with Path(self._place["PYTHONPATH"], "rsnotify/web/client/rsnotify.js").open("a") as client:
            client.write(MARK)

    async def _started(self, words: list[str], environment: dict[str, str], log: int) -> Process:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "rsnotify", *words),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=log,
            env=environment | self._place,
            cwd=self.data.parent,
        )


class Line:
    """A TCP line to a hub, which can be cut."""

    def __init__(self, hub: RunningHub) -> None:
        self._port = hub.port
        self._is_cut = False
        self._server = StreamServer(self._carry)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.url = f"http://127.0.0.1:{self._server.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.__aexit__()

    def cut(self) -> None:
        """End what goes over it, and let nothing new through."""
        self._is_cut = True
        self._server.cut()

    def mend(self) -> None:
        self._is_cut = False

    async def _carry(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._is_cut:
            return
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(_pump(reader, back))
                ways.create_task(_pump(there, writer))
        finally:
            back.transport.abort()


async def _pump(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.close()
    except ConnectionError:  # one side has gone: the other one is told
        writer.transport.abort()


def built(folder: Path) -> Path:
    """The wheel, built from this tree."""
    words = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


async def test_a_line_that_is_cut_loses_nothing_with_the_client_that_the_wheel_carries(
    chromium, tmp_path
):
    wheel = await asyncio.to_thread(built, tmp_path)
    async with (
        HubOfWheel(tmp_path / "data", wheel) as hub,
        Line(hub) as line,
        opened(chromium, line, "dataset1") as page,
    ):
        health, latest = page.locator("#health"), page.locator("#latest td.loc")
        await hub.publish("http://example.com/0")
        await expect(latest).to_have_count(1)
        for round_ in range(3):
            line.cut()
            await expect(health).to_contain_text("connection lost")
            for number in range(5):
                await hub.publish(f"http://example.com/{round_}-{number}")
            line.mend()
            await expect(health).to_have_text("live")
            await expect(latest).to_have_count(1 + 5 * (round_ + 1))
        wanted = [f"{round_}-{number}" for round_ in range(3) for number in range(5)]
        shown = [loc.rpartition("/")[2] for loc in await latest.all_text_contents()]
        assert shown == ["0", *wanted][::-1]
        assert await page.locator("#latest .bad").count() == 0
        assert await page.evaluate("globalThis.isOfTheWheel")


async def test_no_line_is_cut_before_there_is_one(page, set_name):
    """What is missed is counted from where the page has got."""
    is_let_in = asyncio.Event()

    async def later(route: Route) -> None:
        await is_let_in.wait()
        await route.continue_()

    await page.route(f"**/channels/{set_name}/*", later)
    await page.reload()
    await expect(page.locator("#health")).to_have_text("connecting…")
    await expect(page.locator("#cut")).to_be_disabled()
    is_let_in.set()
    await expect(page.locator("#cut")).to_be_enabled()
