"""What large documents took while they were made is given back to the system afterwards."""

import asyncio
from pathlib import Path

import pytest

from rsnotify.process.freed_memory import malloc_trim
from tests.support.running import RunningHub, until

CHANGES, POSTED = 4_000, 400
LOC = "http://example.com/{}/" + "x" * 2_000  # a page of 8 MiB
AT_ONCE = 10
LEFT_BYTES = 100 * 1024 * 1024  # without that, more than 200 MiB are left
ODD = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url>%s</url></urlset>'

pytestmark = pytest.mark.skipif(malloc_trim() is None, reason="only glibc gives memory back")


def resident(hub: RunningHub) -> int:
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


async def test_pages_and_validated_documents_leave_little_memory_behind(tmp_path: Path) -> None:
    async with RunningHub(tmp_path / "data") as hub:
        for begin in range(0, CHANGES, POSTED):
            numbers = range(begin, begin + POSTED)
            last = (await hub.publish(*map(LOC.format, numbers)))["until"]
        before = resident(hub)
        odd = ODD % (b'<a b=""/>' * 100_000)

        async def page(form: str) -> None:
            path = f"/dataset1/changelist.xml?until={last}&format={form}"
            status, _ = await hub.ask("GET", path)
            assert status == 200

        async def validate() -> None:
            headers = {"Content-Type": "application/xml"}
            status, answer = await hub.ask("POST", "/api/validate", data=odd, headers=headers)
            assert status == 200
            assert not answer["valid"]

        for form in ("xml", "json"):
            await asyncio.gather(*(page(form) for _ in range(AT_ONCE)))
        await asyncio.gather(*(validate() for _ in range(4)))

        async def is_given_back() -> bool:
            return resident(hub) <= before + LEFT_BYTES

        await until(is_given_back, 30)
