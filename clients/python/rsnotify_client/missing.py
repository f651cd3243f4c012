"""Is a resource gone that is missing from a list, a harvest or a feed that should have everything?

Rules that hold here: to be missing proves nothing, because the pages of a list may have moved while
they were read. So each resource is asked for, and gone is what answers 404 or 410, or a record that
its repository says it does not have. Whatever else is answered, it is kept. A host that does not
answer, or asks to be left alone, is asked for nothing else in the same look.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.address import host_of, without_tokens
from rsnotify_client.web import Web, retry_after

ASKED_SECONDS = 600.0
"""How long one look asks; the rest is asked for in the next ones."""
GONE_STATUSES = frozenset({404, 410})
THERE_STATUSES = frozenset({200, 206})
FIRST_BYTE = {"Range": "bytes=0-0"}
LEAVE_ALONE = frozenset({429, 502, 503, 504})


class MissingResource(NamedTuple):
    """A resource that is missing: the Source's own key for it, and where to ask for it."""

    key: str
    url: str


class ProbeResult(NamedTuple):
    """What came of asking for a missing resource."""

    is_gone: bool
    why: str = ""  # it is kept
    pauses_host: bool = False  # nothing else is asked for there in this look
    wait_seconds: float = 0.0  # what the host asks for, if it does
    is_there: bool = False  # at its own address
    was_asked: bool = True


def result_by_status(asked: str, found: str, status: int, wait_seconds: float = 0.0) -> ProbeResult:
    """By the status of the last answer, and the address that it came from.

    >>> result_by_status("http://a.example/1", "https://www.a.example/1", 410).is_gone
    True
    >>> result_by_status("http://a.example/1", "http://a.example/login", 200).why
    'http://a.example/1 leads to http://a.example/login, which answers 200'
    """
    is_gone = status in GONE_STATUSES and _host(asked) == _host(found)
    moved = "" if found == asked else f"leads to {found}, which "
    said = f"{asked} {moved}answers {status}"
    return ProbeResult(
        is_gone,
        "" if is_gone else without_tokens(said),
        *_pausing(status, wait_seconds),
        is_there=found == asked and status in THERE_STATUSES,
    )


async def probe(web: Web, url: str) -> ProbeResult:
    """Ask for the first byte of what is at this address: is it gone?"""
    try:
        async with web.ask(url, headers=FIRST_BYTE) as answer:
            seconds = retry_after(answer.headers.get("retry-after"))
            return result_by_status(url, answer.url, answer.status, seconds)
    except (Rejected, TryAgain) as error:
        return result_by_error(error)


def result_by_error(error: Rejected | TryAgain) -> ProbeResult:
    """By the error that came instead of an answer: none came, or it cannot or may not be asked."""
    wait_seconds = getattr(error, "retry_after_seconds", 0.0)
    return ProbeResult(False, error.detail, isinstance(error, TryAgain), wait_seconds)


def _pausing(status: int, wait_seconds: float) -> tuple[bool, float]:
    pauses_host = status in LEAVE_ALONE
    return pauses_host, wait_seconds if pauses_host else 0.0


def result_by_record(
    identifier: str,
    status: int,
    code: str | None,
    *,
    is_deleted: bool = False,
    wait_seconds: float = 0.0,
) -> ProbeResult:
    """By the answer to `GetRecord`: its status, the code of its error, and the record's own.

    >>> result_by_record("oai:a:1", 404, "idDoesNotExist").is_gone
    True
    """
    if is_deleted or code == "idDoesNotExist":
        return ProbeResult(True)
    said = f"answers {status}" if status != 200 else f"is {code}" if code else "is there"
    return ProbeResult(False, f"the record {identifier} {said}", *_pausing(status, wait_seconds))


def _host(url: str) -> str:
    """The host, however it is written; with and without `www.` it is one."""
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return url


def in_turn(keys: Iterable[str], last: str) -> list[str]:
    """In the order of their names, beginning after the last one that was asked for before.

    >>> in_turn(["c", "a", "b"], "a")
    ['b', 'c', 'a']
    """
    return sorted(keys, key=lambda key: (key <= last, key))


async def probe_all(
    missing: Iterable[MissingResource],
    ask: Callable[[MissingResource], Awaitable[ProbeResult]],
) -> AsyncGenerator[tuple[MissingResource, ProbeResult], None]:
    """Ask for one after the other; what is not asked for in this look any more is kept, too."""
    until, paused = monotonic() + ASKED_SECONDS, dict[str, str]()
    for each in missing:
        host = host_of(each.url)
        if monotonic() > until:
            yield each, ProbeResult(False, "not asked for yet", was_asked=False)
        elif host in paused:
            yield each, ProbeResult(False, paused[host], was_asked=False)
        else:
            result = await ask(each)
            if result.pauses_host:
                paused[host] = result.why
            yield each, result


async def probe_locs(
    web: Web, missing: Iterable[str]
) -> AsyncGenerator[tuple[str, ProbeResult], None]:
    """Ask for resources that have no other key than their address.

    Nobody remembers where the look before has ended, so they come in an order of chance: one that
    is never answered does not always stop the same others from being asked for.
    """

    async def ask(each: MissingResource) -> ProbeResult:
        return await probe(web, each.url)

    resources = [MissingResource(loc, loc) for loc in missing]
    random.shuffle(resources)
    async with aclosing(probe_all(resources, ask)) as found:
        async for each, asked in found:
            yield each.key, asked


def kept_back(count: int, why: str) -> str:
    """The sentence about those that are missing and may be there."""
    many = "1 resource is" if count == 1 else f"{count} resources are"
    return f"{many} missing from what the Source lists, but not known to be gone: {why}"
