"""The reference client, `resync` 2.0.1, against a running hub.

Its exit status is 0 even when it fails, so its `Status:` line is read.
"""

import asyncio
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.running import RunningHub


class Handler(SimpleHTTPRequestHandler):
    """Serves files and keeps quiet about it."""

    def log_message(self, *_: object) -> None:
        pass


class Source:
    """Resources as files behind a real file server, and what is told of them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def write(self, name: str, content: str, change: str) -> dict[str, object]:
        path = self.folder / name
        path.write_text(content)
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))
        lastmod = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        told = {"loc": f"{self.url}/{name}", "change": change, "lastmod": lastmod}
        return told | {"length": len(content)}

    def delete(self, name: str) -> dict[str, object]:
        (self.folder / name).unlink()
        return {"loc": f"{self.url}/{name}", "change": "deleted"}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    folder = tmp_path / "source"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield Source(folder, f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    serving.join()
    server.server_close()


class Destination:
    """What the client keeps in step with the Source."""

    def __init__(
        self, resync: Path, folder: Path, hub: RunningHub, source: Source, wanted: str = ""
    ) -> None:
        self.folder = folder / "destination"
        self.folder.mkdir(exist_ok=True)
        self.command = [str(resync), f"{source.url}={self.folder}", "--noauth", "--delete"]
        self.command += ["--capabilitylist", f"{hub.url}/dataset1/capabilitylist.xml"]
        self.command += ["--changelist-uri", f"{hub.url}/dataset1/changelist.xml{wanted}"]

    async def run(self, *mode: str) -> str:
        """What the client said."""
        process = await asyncio.create_subprocess_exec(
            *self.command,
            *mode,
            cwd=self.folder.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return said.decode()

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir()}


async def tell(hub: RunningHub, *changes: dict[str, object]) -> None:
    status, answer = await hub.ask("POST", "/api/sets/dataset1/changes", json=changes)
    assert status == 201, answer


async def snapshot(hub: RunningHub) -> str:
    """Take a snapshot; its `at`."""
    status, answer = await hub.ask("POST", "/api/sets/dataset1/snapshot")
    assert status == 201, answer
    at: str = answer["at"]
    return at


async def test_the_reference_client_ends_in_sync(resync, hub, source, tmp_path):
    created = [source.write(name, f"first {name}", "created") for name in "abc"]
    await tell(hub, *created)
    at = await snapshot(hub)
    destination = Destination(resync, tmp_path, hub, source)

    said = await destination.run("--baseline")
    assert destination.files() == {name: f"first {name}" for name in "abc"}, said

    # Left to itself the client begins at the newest lastmod it saw, and forgets a resource that was
    # created and deleted since; the snapshot's `at` is the right place.
    changes = [source.write("b", "second, longer", "updated"), source.delete("a")]
    changes.append(source.write("d", "the first of d", "created"))
    await tell(hub, *changes)
    said = await destination.run("--incremental", "--from", at)
    expected = {"b": "second, longer", "c": "first c", "d": "the first of d"}
    assert destination.files() == expected, said

    await snapshot(hub)
    said = await destination.run("--audit")
    assert re.search(r"Status:\s+IN SYNC", said), said


@pytest.mark.evidence
async def test_the_reference_client_deletes_what_was_created_right_before_a_snapshot(
    resync, hub, source, tmp_path
):
    """It compares `datetime >= from`, and drops a creation together with its deletion."""
    await tell(hub, source.write("a", "a", "created"), source.write("b", "b", "created"))
    at = await snapshot(hub)
    destination = Destination(resync, tmp_path, hub, source)
    said = await destination.run("--baseline")
    assert sorted(destination.files()) == ["a", "b"], said

    await tell(hub, source.delete("b"))
    said = await destination.run("--incremental", "--from", at)
    assert sorted(destination.files()) == ["a"], said


@pytest.mark.evidence
async def test_the_reference_client_takes_what_a_list_with_a_filter_has(
    resync, hub, source, tmp_path
):
    await tell(hub, source.write("page", "a page", "created"))
    at = await snapshot(hub)
    said = await Destination(resync, tmp_path, hub, source).run("--baseline")

    async def taken(prefix: str) -> dict[str, str]:
        nonlocal said
        wanted = f"?from={at}&prefix={source.url}/{prefix}"
        destination = Destination(resync, tmp_path, hub, source, wanted)
        said = await destination.run("--incremental", "--from", at)
        return destination.files()

    before = {"page": "a page"}
    await tell(hub, source.write("page", "another page", "updated"))
    await tell(hub, source.write("paper", "a paper", "created"))
    assert await taken("nothing-is-below-this") == before, said
    assert re.search(r"Status:\s+NO CHANGES", said), said
    assert await taken("paper") == before | {"paper": "a paper"}, said
    at = await snapshot(hub)
    await tell(hub, source.delete("paper"), source.delete("page"))
    assert await taken("paper") == before, said
