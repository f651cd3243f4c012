"""What a list, a harvest or a feed that has everything leaves out: is it gone?

Rules that hold here: to be left out proves nothing, because the pages of a list may have moved
while they were read. So each resource is asked for, and gone is what answers 404 or 410, or a
record that its repository says it does not have. Whatever else is answered, it is kept. A host
that does not answer, or asks to be left alone, is asked for nothing else in the same look.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.address import host_of, without_tokens
from rsnotify_client.web import Web, retry_after

ASKED_SECONDS = 600.0
"""So long a look asks; the rest is asked for in the next ones."""
GONE_STATUSES = frozenset({404, 410})
THERE_STATUSES = frozenset({200, 206})
FIRST_BYTE = {"Range": "bytes=0-0"}
LEAVE_ALONE = frozenset({429, 502, 503, 504})
LATER = "not asked for yet"


class MissingResource(NamedTuple):
    """A resource that was left out: the Source's own key for it, and where to ask for it."""

    key: str
    url: str


class ResourceStanding(NamedTuple):
    """What came of asking: whether it is gone, and if not, what speaks against it."""

    is_gone: bool
    why: str = ""
    is_silent: bool = False  # the host is to be left alone
    wait_seconds: float = 0.0  # for as long as this, if it said so
    is_there: bool = False  # at its own address


def standing_of(asked: str, found: str, status: int, wait_seconds: float = 0.0) -> ResourceStanding:
    """By the status of the last answer, and the address that it came from.

    >>> standing_of("http://a.example/1", "https://www.a.example/1", 410).is_gone
    True
    >>> standing_of("http://a.example/1", "http://a.example/login", 200).why
    'http://a.example/1 leads to http://a.example/login, which answers 200'
    """
    is_gone = status in GONE_STATUSES and _host(asked) == _host(found)
    moved = "" if found == asked else f"leads to {found}, which "
    said = f"{asked} {moved}answers {status}"
    return ResourceStanding(
        is_gone,
        "" if is_gone else without_tokens(said),
        *_left(status, wait_seconds),
        is_there=found == asked and status in THERE_STATUSES,
    )


async def standing(web: Web, url: str) -> ResourceStanding:
    """Whether what is at this address is gone; its first byte would do."""
    try:
        async with web.ask(url, headers=FIRST_BYTE) as answer:
            seconds = retry_after(answer.headers.get("retry-after"))
            return standing_of(url, answer.url, answer.status, seconds)
    except (Rejected, TryAgain) as error:
        return standing_of_error(error)


def standing_of_error(error: Rejected | TryAgain) -> ResourceStanding:
    """By why there was no answer: it does not come, it may not be asked for, or cannot be."""
    wait_seconds = getattr(error, "retry_after_seconds", 0.0)
    return ResourceStanding(False, error.detail, isinstance(error, TryAgain), wait_seconds)


def _left(status: int, wait_seconds: float) -> tuple[bool, float]:
    is_silent = status in LEAVE_ALONE
    return is_silent, wait_seconds if is_silent else 0.0


def standing_of_record(
    identifier: str,
    status: int,
    code: str | None,
    *,
    is_deleted: bool = False,
    wait_seconds: float = 0.0,
) -> ResourceStanding:
    """By the answer to `GetRecord`: its status, the code of its error, and the record's own.

    >>> standing_of_record("oai:a:1", 404, "idDoesNotExist").is_gone
    True
    """
    if is_deleted or code == "idDoesNotExist":
        return ResourceStanding(True)
    said = f"answers {status}" if status != 200 else f"is {code}" if code else "is there"
    return ResourceStanding(False, f"the record {identifier} {said}", *_left(status, wait_seconds))


def _host(url: str) -> str:
    """The host, however it is written; a site and its www are one."""
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return url


def in_turn(keys: Iterable[str], last: str) -> list[str]:
    """In their order, from the one after the last that was asked for: each gets its turn.

    >>> in_turn(["c", "a", "b"], "a")
    ['b', 'c', 'a']
    """
    return sorted(keys, key=lambda key: (key <= last, key))


async def standings(
    missing: Iterable[MissingResource],
    ask: Callable[[MissingResource], Awaitable[ResourceStanding]],
) -> AsyncGenerator[tuple[MissingResource, ResourceStanding], None]:
    """Each as it stands; those for which nobody is asked any more in this look are kept."""
    until, silent = monotonic() + ASKED_SECONDS, dict[str, str]()
    for each in missing:
        host = host_of(each.url)
        if monotonic() > until:
            yield each, ResourceStanding(False, LATER)
        elif host in silent:
            yield each, ResourceStanding(False, silent[host])
        else:
            standing = await ask(each)
            if standing.is_silent:
                silent[host] = standing.why
            yield each, standing


async def missing_standings(
    web: Web, missing: Iterable[str]
) -> AsyncGenerator[tuple[str, ResourceStanding], None]:
    """The same for resources of which the address is all that there is."""

    async def ask(each: MissingResource) -> ResourceStanding:
        return await standing(web, each.url)

    resources = [MissingResource(loc, loc) for loc in missing]
    async with aclosing(standings(resources, ask)) as found:
        async for each, asked in found:
            yield each.key, asked


def kept_back(count: int, why: str) -> str:
    """What is said of those that are missing and may be there."""
    many = "1 resource is" if count == 1 else f"{count} resources are"
    return f"{many} missing from what the Source lists, but not known to be gone: {why}"
