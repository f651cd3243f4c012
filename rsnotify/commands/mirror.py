"""`rsnotify mirror`: a copy of a Source, as the command line asks for it; and its exit status."""

import asyncio
import re
import signal
import sys
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from rsnotify.commands.mirror_shown import Shown, reporter, say, say_end, show
from rsnotify.errors import InvalidSettings, Rejected
from rsnotify_client.mirror.hooks import Hook, command_hook
from rsnotify_client.mirror.mirror import Mirror
from rsnotify_client.mirror.options import Options
from rsnotify_client.mirror.paths import Map, place_of
from rsnotify_client.mirror.plan import Selection
from rsnotify_client.mirror.report import Event

ADDRESS = re.compile("(http|ws)s?:/", re.IGNORECASE)  # of a path, too, which has one slash only


def options_of(
    selects: list[str],
    excludes: list[str],
    maps: list[str],
    jobs: int,
    per_host: int,
    keep_deleted: Path | None,
    *,
    max_delete: float,
    has_files: bool,
) -> Options:
    """What the command line says, checked."""
    return Options(
        selection=Selection(tuple(selects), tuple(excludes)),
        max_delete=max_delete,
        maps=tuple(map(_map, maps)),
        jobs=jobs,
        per_host=min(per_host, jobs),
        keep_deleted=keep_deleted,
        has_files=has_files,
    )


def _map(text: str) -> Map:
    prefix, _, folder = text.rpartition("=")
    parts = folder.split("/")
    if not prefix or not all(parts) or {".", ".."} & set(parts) or "~" in folder:
        raise InvalidSettings(
            [f"--map {text}: give PREFIX=DIR, with DIR a folder inside the mirror such as data/pdf"]
        )
    if place_of(f"http://x/{folder}") != f"x/{folder}":
        raise InvalidSettings([f"--map {text}: {folder!r} is no plain name of a folder"])
    return prefix, folder


def run_mirror(
    url: str,
    directory: Path | None,
    options: Options,
    *,
    token: str | None,
    once: bool,
    command: str | None,
    shown: Shown,
) -> int:
    """Run it; the exit status."""
    _check_address(url, directory)
    with ExitStack() as stack:
        if directory is None:
            from tempfile import TemporaryDirectory  # noqa: PLC0415 - seldom needed

            folder = stack.enter_context(TemporaryDirectory(prefix="rsnotify-mirror-"))
            directory = Path(folder)
        hook = _hook(command, directory, has_files=options.has_files)
        return until_ended(
            _mirror(url, directory, options, token=token, once=once, hook=hook, shown=shown)
        )


def _check_address(url: str, directory: Path | None) -> None:
    """Before anything is made in the directory."""
    if ADDRESS.match(url):
        return
    is_swapped = directory is not None and ADDRESS.match(str(directory))
    mend = "the address comes first, then the directory"
    if not is_swapped:
        mend = "give one that begins with http://, https:// or ws://"
    raise InvalidSettings([f"{url!r} is no address: {mend}"])


def until_ended(work: Coroutine[Any, Any, int]) -> int:
    """Run until it ends; SIGTERM is an interruption as Ctrl-C is."""

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _mirror(
    url: str,
    directory: Path,
    options: Options,
    *,
    token: str | None,
    once: bool,
    hook: Hook | None,
    shown: Shown,
) -> int:
    try:
        mirror = Mirror(url, directory, options, token=token, hook=hook, report=reporter(shown))
        async with mirror:
            showing = asyncio.create_task(show(mirror, shown))
            try:
                is_whole = await (mirror.once() if once else mirror.keep())
            finally:
                showing.cancel()
                await asyncio.gather(showing, return_exceptions=True)
                if not isinstance(sys.exception(), Exception):  # that says more
                    say_end(mirror, shown)
            return 0 if is_whole else 1
    except Rejected as error:
        raise InvalidSettings([error.detail]) from None


def _hook(command: str | None, directory: Path, *, has_files: bool) -> Hook | None:
    if command is not None:
        return command_hook(command, directory)
    return None if has_files else print_content


async def print_content(event: Event, content: bytes | None) -> None:
    """One JSON line for each change, with the content in base64."""
    from base64 import b64encode  # noqa: PLC0415 - seldom needed

    line = msgspec.to_builtins(event)
    if content is not None:
        line["content"] = b64encode(content).decode()
    say(msgspec.json.encode(line))
