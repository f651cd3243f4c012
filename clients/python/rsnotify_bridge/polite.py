"""Requests that take their turn: one at a time to each host, and what robots.txt asks is kept.

Rules that hold here: who asks often, and without a person behind it, uses this; a host without
robots.txt allows everything, one whose robots.txt cannot be had now nothing (RFC 9309, 2.3.1). A
redirect is another request. An answer that drips is given up after some minutes, so that others
have their turn.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic, time
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.http_date import date_seconds
from rsnotify_bridge.oaipmh import PREFIX
from rsnotify_client.address import host_of
from rsnotify_client.answer import AGAIN
from rsnotify_client.network import Network
from rsnotify_client.token import HeldToken, Token
from rsnotify_client.web import (
    REDIRECTS,
    Refused,
    Reply,
    Web,
    again,
    too_often_redirected,
)

log = logging.getLogger(__name__)

ROBOT = "rsnotify"
ROBOTS_BYTES = 512 * 1024
PAGE_SECONDS = 300.0  # that a body may keep its reader waiting, altogether
ROBOTS_SECONDS = 24 * 3_600.0
LONGEST_DELAY_SECONDS = 30.0
TOO_LONG = "%s asks for %d s between two requests: %d s are kept"
CLOSED = ", and nothing else there is asked for until it can; say --no-robots if it is yours"


class Hosts:
    """Whose turn it is at each host, and what its robots.txt says."""

    def __init__(
        self,
        *,
        obeys_robots: bool = True,
        page_seconds: float = PAGE_SECONDS,
        robots_seconds: float = ROBOTS_SECONDS,
        longest_delay_seconds: float = LONGEST_DELAY_SECONDS,
    ) -> None:
        self.obeys_robots = obeys_robots
        self.page_seconds = page_seconds
        self.longest_delay_seconds = longest_delay_seconds
        self._robots_seconds = robots_seconds
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._robots: dict[str, tuple[float, RobotFileParser]] = {}
        self._next: dict[str, float] = {}

    @asynccontextmanager
    async def turn(self, web: "PoliteWeb", url: str) -> AsyncIterator[None]:
        host = host_of(url)
        async with self._turns[host]:
            delay = await self._obey(web, host, url) if self.obeys_robots else 0.0
            if (wait := self._next.get(host, 0.0) - monotonic()) > 0:
                await asyncio.sleep(wait)
            try:
                yield
            finally:
                self._next[host] = monotonic() + delay

    async def _obey(self, web: "PoliteWeb", host: str, url: str) -> float:
        """How long to wait before the next request."""
        until, robots = self._robots.get(host, (0.0, None))
        if robots is None or until < monotonic():
            robots = await web.robots(host, robots)
            self._robots[host] = monotonic() + self._robots_seconds, robots
        if not robots.can_fetch(ROBOT, url):
            raise Refused(
                f"{host}/robots.txt asks robots to leave {urlsplit(url).path} alone: ask its "
                "operator to allow rsnotify, or say --no-robots if it is yours"
            )
        return min(self.longest_delay_seconds, int(robots.crawl_delay(ROBOT) or 0))


def ahead_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """How far a server's clock is ahead of ours; what a cache has kept was said its age ago.

    >>> ahead_seconds({"date": "Thu, 01 Jan 1970 02:00:00 GMT", "age": "60"}, 60.0)
    7200.0
    """
    said, age = date_seconds(headers.get("date")), headers.get("age", "0").strip()
    return None if said is None else said + int(age if age.isdecimal() else 0) - now


class PoliteWeb(Web):
    """A client that takes its turn."""

    def __init__(
        self, token: Token | HeldToken | None, url: str, network: Network, hosts: Hosts
    ) -> None:
        super().__init__(token, url, connections=4, network=network)
        self._hosts = hosts
        self.ahead_seconds: float | None = None  # by the Source's clock, when it answered last

    @asynccontextmanager
    async def ask(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
    ) -> AsyncIterator[Reply]:
        """One answer of any status; a redirect waits for its turn, and obeys its own host. One that
        the server holds back takes no turn from others."""
        if patience is not None:
            async with super().ask(url, headers=headers, patience=patience) as reply:
                yield reply
            return
        asked = url
        for _ in range(REDIRECTS + 1):
            async with self._hosts.turn(self, asked):
                answer = await self.threads.run(self.step, url, asked, headers or {})
                if answer.leads_to is None:
                    async with self._taken(Reply(answer, self.threads)) as reply:
                        yield reply
                    return
            asked = answer.leads_to
        raise too_often_redirected(url)

    @asynccontextmanager
    async def _taken(self, reply: Reply) -> AsyncIterator[Reply]:
        """While it comes, which may not take for ever, nobody else asks this host."""
        try:
            self.ahead_seconds = ahead_seconds(reply.headers, time())
            reply.ends_in(self._hosts.page_seconds)
            yield reply
        finally:
            reply.close()

    async def robots(self, host: str, before: RobotFileParser | None) -> RobotFileParser:
        """What robots.txt says, or said before; all is allowed where there is none."""
        url, found = f"{host}/robots.txt", RobotFileParser()
        found.parse([])
        try:
            async with super().ask(url) as answer:
                answer.ends_in(self._hosts.page_seconds)
                if answer.status in AGAIN or answer.status >= 500:
                    raise again(url, answer)
                if answer.status != 200:
                    return found
                text = (await answer.read(ROBOTS_BYTES)).decode(errors="replace")
        except Rejected:
            return found
        except TryAgain as error:
            if before is None:
                error.detail += CLOSED
                raise
            log.warning("%s; what it said before is kept", error.detail)
            return before
        found.parse(filter(_can_be_parsed, text.splitlines()))
        most = self._hosts.longest_delay_seconds
        if (asked := int(found.crawl_delay(ROBOT) or 0)) > most:
            log.warning(TOO_LONG, url, asked, most)
        return found


class Webs(NamedTuple):
    """The clients of one bridge: one takes its turn, the other holds a channel open."""

    polite: PoliteWeb
    channel: Web

    @classmethod
    def of(
        cls, url: str, token: Token | HeldToken | None, network: Network, hosts: Hosts
    ) -> "Webs":
        address = url.removeprefix(PREFIX)
        polite = PoliteWeb(token, address, network, hosts)
        return cls(polite, Web(token, address, network=network))

    async def close(self) -> None:
        await self.polite.close()
        await self.channel.close()


def _can_be_parsed(line: str) -> bool:
    """The parser fails at superscripts, which it takes for numbers, and at thousands of digits.

    >>> [_can_be_parsed(each) for each in ("Crawl-delay: 2", "Crawl-delay: ²", "Disallow: /²")]
    [True, False, True]
    """
    name, _, value = line.partition(":")
    is_number = name.strip().lower() in ("crawl-delay", "request-rate")
    is_odd = len(value) > 64 or any(each.isdigit() and not each.isdecimal() for each in value)
    return not (is_number and is_odd)
