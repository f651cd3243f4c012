"""A program without an event loop keeps a copy: by `Mirror`, which blocks."""

import asyncio
import threading
from pathlib import Path

import pytest

from rsnotify_client import Error
from rsnotify_mirror import Event, Mirror, Options
from tests.support.sources import CAPABILITIES, Source


def threads_of_mirrors() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "rsnotify-mirror"]


async def test_a_copy_is_made_and_kept_until_it_is_told_to_stop(source: Source, tmp_path: Path):
    """In a thread, for the Source serves in this loop."""
    called, has_stored = set[str | None](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def report(event: Event) -> None:
        if event.event == "stored" and event.loc == source.loc("d.txt"):
            loop.call_soon_threadsafe(has_stored.set)

    def hook(event: Event, _: bytes | None) -> None:
        called.add(event.loc)

    options = Options(poll_seconds=0.05)
    mirror = Mirror(
        source.url + CAPABILITIES, str(tmp_path / "copy"), options, hook=hook, report=report
    )
    assert await asyncio.to_thread(mirror.once)
    running = asyncio.create_task(asyncio.to_thread(mirror.run))
    source.change("d.txt", b"first d")
    await has_stored.wait()
    mirror.stop()
    await running
    await asyncio.to_thread(mirror.close)
    assert source.loc("d.txt") in called
    assert threads_of_mirrors() == []


def test_it_may_be_called_while_an_event_loop_runs_in_its_thread(tmp_path: Path):
    async def main() -> None:
        with Mirror("http://127.0.0.1:9", tmp_path / "copy") as mirror:
            mirror.once()

    with pytest.raises(Error, match=r"127\.0\.0\.1:9"):
        asyncio.run(main())
    assert threads_of_mirrors() == []


def test_a_directory_that_cannot_be_used_leaves_no_thread(tmp_path: Path):
    (tmp_path / "copy").write_text("a file")
    with pytest.raises(Error):
        Mirror("http://127.0.0.1:9", tmp_path / "copy")
    assert threads_of_mirrors() == []
