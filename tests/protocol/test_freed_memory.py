"""What large documents take of memory while they are made and sent, and what is left afterwards."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rsnotify.process.freed_memory import malloc_trim
from tests.support.running import RunningHub, until

CHANGES, POSTED = 4_000, 400
LOC = "http://example.com/{}/" + "x" * 2_000  # a page of 8 MiB
AT_ONCE = 10
UNREAD = 32  # pages that nobody reads: a piece of each is held, of up to 1 MiB
HELD_BYTES = 128 * 1024 * 1024  # with whole pages it would be twice that, and more
LEFT_BYTES = 48 * 1024 * 1024  # without that, more than 150 MiB are left
ODD = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url>%s</url></urlset>'


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def hub_and_last(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[RunningHub, str]]:
    """A hub that has enough for a page, and where the page ends."""
    async with RunningHub(tmp_path_factory.mktemp("memory") / "data") as hub:
        yield hub, await publish(hub)


def resident(hub: RunningHub) -> int:
    status = Path(f"/proc/{hub.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


async def publish(hub: RunningHub) -> str:
    """Enough for a page; where it ends."""
    for begin in range(0, CHANGES, POSTED):
        numbers = range(begin, begin + POSTED)
        last: str = (await hub.publish(*map(LOC.format, numbers)))["until"]
    return last


@pytest.mark.evidence
@pytest.mark.skipif(malloc_trim() is None, reason="only glibc gives memory back")
async def test_pages_and_validated_documents_leave_little_memory_behind(hub_and_last):
    hub, last = hub_and_last
    before = resident(hub)
    odd = ODD % (b'<a b=""/>' * 100_000)

    async def page(form: str) -> None:
        path = f"/dataset1/changelist.xml?until={last}&format={form}"

        async def is_sent() -> bool:
            status, _ = await hub.ask("GET", path)
            assert status in (200, 503)  # a slow machine's hub asks some to come again
            return status == 200

        await until(is_sent)

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


@pytest.mark.evidence
async def test_of_a_page_that_nobody_reads_a_piece_is_held(hub_and_last):
    """The kernel's buffers are not counted."""
    loop = asyncio.get_running_loop()
    hub, last = hub_and_last
    request = f"GET /dataset1/changelist.xml?until={last} HTTP/1.1\r\nHost: h\r\n\r\n"
    before = resident(hub)
    peers = []
    for _ in range(UNREAD):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", hub.port))
        await loop.sock_sendall(peer, request.encode())
        assert (await loop.sock_recv(peer, 64)).startswith(b"HTTP/1.1 200")
        peers.append(peer)
    assert resident(hub) <= before + HELD_BYTES
    for peer in peers:
        peer.close()
