"""What needs rights on the machine: a full disk, no permission, a bad certificate.

Run as root on Linux, with `openssl` and `mount`.
"""

import asyncio
import os
import ssl
import subprocess
import tempfile
from pathlib import Path

import pytest

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.discovery import discover
from rsnotify_client.web import Web
from rsnotify_mirror.audit import audit
from rsnotify_mirror.mirror import AsyncMirror
from tests.support.sources import CAPABILITIES, Source
from tests.support.stream_server import StreamServer

NOBODY = 65534


async def once(url: str, copy: Path) -> bool:
    async with AsyncMirror(url, copy) as mirror:
        return await mirror.once()


async def full(folder: Path) -> None:
    """It ends with one sentence, keeps what it has, and goes on when there is room."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    subprocess.run(mount, check=True)
    try:
        async with Source() as source:
            for number in range(20):
                source.add(f"r{number}", os.urandom(250_000))
            source.list_resources()
            url = source.url + CAPABILITIES
            with pytest.raises(InvalidSettings, match="make room") as raised:
                await once(url, disk / "copy")
            print(raised.value)
            subprocess.run([*mount[:4], "remount,size=30m", "tmpfs", str(disk)], check=True)
            assert await once(url, disk / "copy")
            assert (await audit(url, disk / "copy")).is_in_sync
    finally:
        subprocess.run(["umount", str(disk)], check=True)


async def forbidden(folder: Path) -> None:
    """A folder that may not be written is one failure; the rest goes on."""
    folder.chmod(0o777)
    os.seteuid(NOBODY)
    try:
        async with Source() as source:
            source.add("open/a", b"a")
            source.add("closed/b", b"b")
            source.list_resources()
            url, copy = source.url + CAPABILITIES, folder / "forbidden"
            assert await once(url, copy)
            (closed,) = copy.glob("*/closed")
            closed.chmod(0o555)
            source.change("open/a", b"second")
            source.change("closed/b", b"second")
            async with AsyncMirror(url, copy) as mirror:
                assert not await mirror.once()
                print(mirror.state.problems())
            assert next(copy.glob("*/open/a")).read_bytes() == b"second"
            closed.chmod(0o755)
            assert await once(url, copy)
            copy.chmod(0o555)
            with pytest.raises(InvalidSettings, match="cannot be used"):
                AsyncMirror(url, copy / "inside")
            copy.chmod(0o755)
    finally:
        os.seteuid(0)


async def untrusted(folder: Path) -> None:
    """Nobody is spoken to whose certificate does not verify."""
    key, certificate = folder / "key", folder / "certificate"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    words += ["-keyout", str(key), "-out", str(certificate), "-days", "1"]
    subprocess.run(words, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with StreamServer(_hang_up, ssl=context) as server, Web() as web:
        for scheme in ("https", "wss"):
            with pytest.raises(Rejected, match="certificate is not trusted") as raised:
                await discover(web, f"{scheme}://127.0.0.1:{server.port}/")
            print(raised.value)


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def main() -> None:
    for proof in (full, forbidden, untrusted):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(proof(Path(folder)))
