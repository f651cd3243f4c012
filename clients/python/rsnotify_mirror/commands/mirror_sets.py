"""`rsnotify mirror` of several sets in one process: all of a Source, or several addresses.

Rules that hold here: each set has a directory and a state of its own, named by its address alone; a
set that fails stops no other, and is tried again; a token is shown to the first address's origin
only. A set that a Source names leads no further than the Source may itself.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import typer

from rsnotify.cli.terminal import echo
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify_client.address import without_tokens
from rsnotify_client.discovery import discover_sets
from rsnotify_client.network import Network
from rsnotify_client.token import Token
from rsnotify_client.web import Web, origin_of
from rsnotify_mirror.planning import found_at
from rsnotify_mirror.state import FILE, State

log = logging.getLogger(__name__)

AT_ONCE = 4  # with --once; each set has its own connections
AGAIN_SECONDS = 300.0
LOOK_SECONDS = 3_600.0  # for sets that are new

MirrorOne = Callable[[str, Path, Token | None, str], Awaitable[int]]
"""Mirrors a set into its directory, with this token, on the word of the address that was given for
it; the exit status."""


def folder_of(url: str) -> str:
    """What the directory of a set is called.

    >>> folder_of("http://a.example/b/set1/capabilitylist.xml"), folder_of("http://a.example/")
    ('set1', 'a.example')
    """
    parts = urlsplit(url)
    names = [each for each in parts.path.split("/") if each]
    if names and re.match(r"capability-?list", names[-1], re.IGNORECASE):
        names.pop()
    name = re.sub(r"\.xml(\.gz)?$", "", names[-1]) if names else (parts.hostname or "")
    return re.sub(r"[^\w.-]", "-", name, flags=re.ASCII).strip(".")[:100] or "set"


def folders_of(urls: Sequence[str]) -> dict[str, str]:
    """By their addresses; where two would have one name, each gets a mark that stays the same."""
    names = {url: folder_of(url) for url in urls}
    shared = [name.lower() for name in names.values()]
    return {
        url: f"{name}~{sha256(url.encode()).hexdigest()[:8]}"
        if shared.count(name.lower()) > 1
        else name
        for url, name in names.items()
    }


def copies_in(directory: Path) -> list[Path]:
    """The mirror that this is, or those of several sets that it holds."""
    if (directory / FILE).exists() or not directory.is_dir():
        return [directory]
    return sorted(each.parent for each in directory.glob(f"*/{FILE}")) or [directory]


def known_addresses(directory: Path) -> set[str]:
    """Where the Sources of the copies in this directory were found."""
    known = set[str]()
    for each in copies_in(directory):
        with suppress(InvalidSettings), State(each, is_writer=False) as state:  # else it is no copy
            known |= state.known_addresses
    return known


@dataclass(repr=False, eq=False)
class SetMirrors:
    """Mirrors of several sets that run beside each other."""

    urls: Sequence[str]
    directory: Path
    mirror: MirrorOne
    _: KW_ONLY
    token: Token | None
    network: Network | None
    all_sets: bool
    once: bool
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _running: dict[str, asyncio.Task[int]] = field(default_factory=dict)
    _named_by: dict[str, str] = field(default_factory=dict)  # the address that led to a set

    async def run(self) -> int:
        """The exit status: 0 if all are up to date."""
        try:
            urls, statuses = await self._found()
            self._begin(urls)
            while not self.once:
                later = asyncio.create_task(asyncio.sleep(LOOK_SECONDS))
                tasks = [later, *self._running.values()]
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                done.pop().result()  # a mirror ends here by an error only, which ends all
                found, failed = await self._found()
                self._begin(found)
                for url in () if failed else self._running.keys() - set(found):
                    log.warning("%s is offered no longer; its copy stays", without_tokens(url))
            return worst([*statuses, *await asyncio.gather(*self._running.values())])
        finally:
            for task in self._running.values():
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)

    def _begin(self, urls: Sequence[str]) -> None:
        for url, name in folders_of(list(dict.fromkeys([*self._running, *urls]))).items():
            if url not in self._running:
                self._running[url] = asyncio.create_task(self._keep(url, self.directory / name))

    async def _found(self) -> tuple[list[str], list[int]]:
        """All sets; and the statuses of addresses where none was found."""
        urls, statuses = list[str](), list[int]()
        for url in self.urls:
            try:
                sets = await self._sets_at(url) if self.all_sets else [url]
                self._named_by = dict.fromkeys(sets, url) | self._named_by
                urls += sets
            except (Rejected, TryAgain) as error:
                if len(self.urls) == 1 and not self._running:
                    if isinstance(error, TryAgain):
                        raise
                    raise InvalidSettings(error.detail) from None
                echo(f"failed: {error.detail}", err=True)
                statuses.append(1)
        return urls, statuses

    async def _sets_at(self, url: str) -> list[str]:
        known = known_addresses(self.directory)
        async with Web(self._token_for(url), url, network=self.network) as web:
            return await found_at(url, partial(discover_sets, web, url), known)

    def _token_for(self, url: str) -> Token | None:
        return self.token if origin_of(url) == origin_of(self.urls[0]) else None

    async def _keep(self, url: str, directory: Path) -> int:
        """Once, or again and again if it ends."""
        while True:
            async with self._places if self.once else asyncio.Lock():
                status = await self._guarded(url, directory)
            if self.once:
                return status
            log.warning("%s is tried again in %g s", directory.name, AGAIN_SECONDS)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _guarded(self, url: str, directory: Path) -> int:
        try:
            return await self.mirror(url, directory, self._token_for(url), self._named_by[url])
        except InvalidSettings as error:
            for problem in error.problems:
                echo(f"{directory.name}: failed: {problem}", err=True)
            return error.exit_status
        except (Rejected, TryAgain) as error:
            echo(f"{directory.name}: failed: {error.detail}", err=True)
            return 1
        except typer.Exit:
            raise
        except Exception:
            log.exception("%s: failed", directory.name)
            return 1


def worst(statuses: Sequence[int]) -> int:
    """0 if all are right; 2 if there is nothing but wrong use; else 1."""
    if not any(statuses):
        return 0
    return 2 if statuses and all(each == 2 for each in statuses) else 1
