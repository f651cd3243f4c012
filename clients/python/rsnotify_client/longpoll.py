"""A channel by long polls: the Durable Stream that a hub has beside it, one request after another.

Rules that hold here: a question is written as the official clients of that protocol write it, so
that caches join the questions of all who have read equally far. An answer that does not come in
time is asked for at once by a request that does not wait, and a hub that does not wait is asked
seldom. What a peer may send is bounded.
"""

import asyncio
import logging
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from time import time
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from rsnotify.resourcesync.change import Position
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify.resourcesync.notification import (
    CHANNEL_PATH,
    CHANNELS_PATH,
    FRAMEWORK_STREAM_PATH,
    STREAM_PATH,
    canonical_query,
    capability_list,
)
from rsnotify_client.answer import HUB_BACKOFF, in_words
from rsnotify_client.discovery import http_twin
from rsnotify_client.moments import is_ahead
from rsnotify_client.notification import Lost, Messages, NoChannel, position_of
from rsnotify_client.web import Reply, Unreachable, Web

log = logging.getLogger(__name__)

ANSWER_BYTES = 16 * 1024 * 1024
PATIENCE_SECONDS = 45.0  # a hub answers after 25
ANSWER_SECONDS = 10.0  # where it need not wait
HURRIED_ANSWERS = 3  # that bring nothing and come at once, one after another
HURRIED_SECONDS = 1.0

_KIND = "(?P<kind>change|framework)"
_CHANNEL = re.compile("(?P<base>.*)" + CHANNEL_PATH.format(set="(?P<name>[^/]+)", kind=_KIND))
_CHANNELS = re.compile("(?P<base>.*)" + CHANNELS_PATH.format(kind=_KIND))
_OF_CHANNELS = ("set", "from", "since", "format")  # what the address of a stream does not have

Check = Callable[[str, Reply], Awaitable[None]]


class StreamAddress(NamedTuple):
    """A stream, and where to begin there; None is now."""

    set_name: str
    url: str
    up: str  # the Capability List of its set
    begin: Position | None


def streams_beside(url: str, cursor: Position | None) -> list[StreamAddress]:
    """The streams of the sets of a channel at such an address as hubs have; none of another one.

    >>> channel = "ws://a/b/channels/c/change_notification_channel"
    >>> [each.url for each in streams_beside(channel, None)]
    ['http://a/b/streams/c']
    """
    parts = urlsplit(http_twin(url))
    query = parse_qsl(parts.query, keep_blank_values=True)
    said = [position_of(value) for name, value in query if name in ("from", "since")]
    start = cursor or next(iter(said), None)
    if found := _CHANNEL.fullmatch(parts.path):
        begins = {found["name"]: start}
    elif found := _CHANNELS.fullmatch(parts.path):
        sets = [value.partition("@")[::2] for name, value in query if name == "set"]
        begins = {name: position_of(at) or start for name, at in sets}
    else:
        return []
    path = STREAM_PATH if found["kind"] == "change" else FRAMEWORK_STREAM_PATH
    kept = urlencode([pair for pair in query if pair[0] not in _OF_CHANNELS])
    base = parts._replace(query="", fragment="")
    return [
        StreamAddress(
            name,
            urlunsplit(base._replace(path=found["base"] + path.format(set=name), query=kept)),
            urlunsplit(base._replace(path=found["base"] + capability_list(name))),
            begin,
        )
        for name, begin in begins.items()
    ]


def question(url: str, asked: Mapping[str, str]) -> str:
    """The address with these parameters, in the one way that caches share.

    >>> question("http://a/streams/b", {"offset": "2026-11-20T21:34:00.123456Z", "cursor": "7"})
    'http://a/streams/b?cursor=7&offset=2026-11-20T21%3A34%3A00.123456Z'
    """
    parts = urlsplit(url)
    pairs = [*parse_qsl(parts.query, keep_blank_values=True), *asked.items()]
    return urlunsplit(parts._replace(query=canonical_query(pairs).decode()))


class StreamFollower:
    """Reads one stream from an offset on."""

    def __init__(self, web: Web, address: StreamAddress, check: Check) -> None:
        self.set_name = address.set_name
        self.date: str | None = None
        """The peer's, of its newest answer."""
        self.begins: Position
        """Where it began, as the peer says."""
        self._web = web
        self._address = address
        self._check = check
        self._offset = address.begin
        self._cursor: str | None = None
        self._first: Messages | None = None
        self._leads_astray = False

    async def begin(self) -> None:
        """Learn where the stream stands, from an answer that is not waited for."""
        asked = self._offset
        self._first = await self._next(waits=False)
        is_behind = self._first is not None and asked is not None
        self.begins = asked if is_behind else self._offset  # type: ignore[assignment]

    async def messages(self) -> AsyncGenerator[Messages, None]:
        """What follows, as it comes; it ends with an error only."""
        if self._first is not None:
            yield self._first
            self._check_offset()
        loop, hurried = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                found = await self._next(waits=True)
            except Unreachable:  # perhaps it waits for longer, or what is between does not
                found = await self._next(waits=False)
            if found is not None:
                hurried = 0
                yield found
                self._check_offset()
                continue
            hurried = hurried + 1 if loop.time() < began + HURRIED_SECONDS else 0
            if hurried >= HURRIED_ANSWERS:
                failures = hurried - HURRIED_ANSWERS
                wait = HUB_BACKOFF.seconds(failures, random.random(), 0)  # noqa: S311
                log.warning("the hub does not wait for changes; asking in %s", in_words(wait))
                await asyncio.sleep(wait)

    async def _next(self, *, waits: bool) -> Messages | None:
        """One answer, for which the peer may wait until there is something to say."""
        after = self._offset
        asked = {"offset": "now" if after is None else str(after)}
        if waits:
            asked |= {"live": "long-poll"} | ({"cursor": self._cursor} if self._cursor else {})
        url = question(self._address.url, asked)
        patience = PATIENCE_SECONDS if waits else ANSWER_SECONDS
        async with self._web.ask(url, patience=patience) as answer:
            if waits and answer.status == 401 and await self._web.has_others(answer.shown):
                return None  # the token has ended while it was waited
            until = await self._until(answer)
            body = b"" if answer.status == 204 else await answer.read(ANSWER_BYTES + 1)
        if len(body) > ANSWER_BYTES:
            raise Lost(f"an answer is longer than {ANSWER_BYTES} bytes")
        self.date = answer.headers.get("date")
        self._offset, self._cursor = until, answer.headers.get("stream-cursor")
        if after is None or until == after:
            return None
        if until > after:
            self._leads_astray = self._is_to_come(until) and not self._is_to_come(after)
            return Messages(body or b"[]", after, until, self._address.up)
        if waits:
            raise Lost(f"the stream ends at {until} now, and at {after} before")
        return None

    def _check_offset(self) -> None:
        """Whoever asked for what follows a time that has not come would be told of nothing."""
        if self._leads_astray:
            raise Lost(f"the stream goes on at {self._offset}, which has not come yet")

    def _is_to_come(self, at: Position) -> bool:
        return is_ahead(str(at), max(time(), date_seconds(self.date) or 0.0))

    async def _until(self, answer: Reply) -> Position:
        """Up to where an answer has all changes; or the error that it stands for."""
        if answer.status not in (200, 204):
            await self._check(self._address.url, answer)
        if (until := position_of(answer.headers.get("stream-next-offset"))) is None:
            kind = answer.headers.get("content-type")
            raise NoChannel(self._address.url, answer.status, kind)
        return until


async def begin_all(readers: Sequence[StreamFollower]) -> None:
    """Let all begin, at the same time."""
    if len(readers) == 1:
        await readers[0].begin()
        return
    try:
        async with asyncio.TaskGroup() as group:
            for each in readers:
                group.create_task(each.begin())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


async def merged(readers: Sequence[StreamFollower]) -> AsyncGenerator[Messages, None]:
    """What several readers give, in the order in which it comes, until one of them fails."""
    found: asyncio.Queue[Messages | Exception] = asyncio.Queue(1)

    async def read(reader: StreamFollower) -> None:
        try:
            async with aclosing(reader.messages()) as messages:
                async for each in messages:
                    await found.put(each)
        except Exception as error:
            await found.put(error)

    tasks = [asyncio.create_task(read(each)) for each in readers]
    try:
        while True:
            piece = await found.get()
            if isinstance(piece, Exception):
                raise piece
            yield piece
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
