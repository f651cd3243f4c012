"""The hub that a bridge publishes to: batches, the whole state of a set, what it knows already.

Rules that hold here: what waits does so in a thread; a batch or a load is repeated with its key
until it is known what became of it.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from threading import Event
from typing import Any
from urllib.parse import urlencode

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.stream import DocumentStream
from rsnotify_bridge.rules import is_news
from rsnotify_client.discovery import WELL_KNOWN
from rsnotify_client.hub import JSON, HubClient
from rsnotify_client.loading import (
    NDJSON,
    LoadBody,
    LoadRequest,
    lines_of,
    load,
    path_of_resources,
    position,
)
from rsnotify_client.queue import channel_of
from rsnotify_client.threads import given_up_if
from rsnotify_client.token import HeldToken, Token
from rsnotify_client.web import Web

CONFLICT, REFUSES = 409, "this would delete"
NOT_FOUND = 404

log = logging.getLogger(__name__)


class TooManyGone(Exception):
    """A load would delete what others may have put into the set."""


class HubTarget:
    """One set of a hub."""

    def __init__(
        self, url: str, token: Token | HeldToken | None, set_name: str, *, creates: bool = False
    ) -> None:
        self.url, self.set_name = url.rstrip("/"), set_name
        self._creates = creates
        self._token = HeldToken.of(token)
        self._hub = HubClient(url, self._token)
        self._channel = channel_of(set_name, "change")
        self._path = path_of_resources(set_name)

    def close(self) -> None:
        self._hub.close()

    async def check(self) -> None:
        await self.prepare()
        await asyncio.to_thread(self._hub.check_right, self._channel)

    async def prepare(self) -> None:
        """Make the set, if it is to be made and is not there; once, for it may be removed later."""
        if self._creates:
            await asyncio.to_thread(self._create)
            self._creates = False

    def _create(self) -> None:
        """A set that is there is not touched, so a token that may only publish to it will do."""
        try:
            self._hub.ask("GET", self._path)
        except Rejected as error:
            if error.status != NOT_FOUND:
                raise
        else:
            return
        try:
            self._hub.ask("PUT", self._path.removesuffix("/resources"))
        except Rejected as refused:
            detail = f"there is no set {self.set_name!r} that this token may publish to, and it "
            detail += f"cannot be made: {refused.detail}"
            raise Rejected(detail, status=refused.status) from None
        log.info("%s: made at %s", self.set_name, self.url)

    async def publish(self, changes: list[Change], key: str) -> None:
        body = msgspec.json.encode(changes)
        await asyncio.to_thread(self._hub.publish, self._channel, body, key, JSON)

    async def homes(self) -> frozenset[str]:
        """How the set's Capability List is called: by us, and by the hub itself."""
        name = f"/{self.set_name}/capabilitylist.xml"
        stream = DocumentStream()
        try:
            async with Web(self._token, self.url) as web:
                page = await web.page(self.url + WELL_KNOWN)
            entries = [*stream.feed(page.body), *stream.close()]
        except (Rejected, TryAgain):
            entries = []
        found = {each.loc for each in entries if each.loc.endswith(name)}
        return frozenset({self.url + name} | found)

    async def knows(self, change: Change) -> bool:
        """Whether the set says of this resource already what the change says."""
        query = urlencode({"loc": change.loc})
        try:
            answer = await asyncio.to_thread(self._hub.ask, "GET", f"{self._path}?{query}")
        except Rejected as error:
            return error.status == 404 and change.change == "deleted"
        if change.change == "deleted":
            return False
        names = {*Change.__struct_fields__} - {"change"}
        said = {name: value for name, value in answer.content.items() if name in names}
        return not is_news(msgspec.convert({**said, "change": "created"}, Change), change)

    async def count(self) -> int:
        """How many resources the set has."""
        answer = await asyncio.to_thread(self._hub.ask, "GET", self._path)
        count: int = answer.object("resources")["resources"]
        return count

    async def position(self) -> str:
        """The moment of a state that is read from now on."""
        return await asyncio.to_thread(position, self._hub, self.set_name)

    async def load(
        self, states: Callable[[], Generator[Change, None, None]], key: str, request: LoadRequest
    ) -> Any:
        """Make these the resources of the set, and wait until they are.

        Raises `TooManyGone` if that would delete more than it may.
        """

        def lines() -> Iterator[bytes]:
            with closing(states()) as found:  # what a thread reads of SQLite it closes, too
                yield from lines_of(found)

        body = LoadBody({"Content-Type": NDJSON}, lines)
        is_cancelled = Event()

        def act() -> Any:
            with given_up_if(is_cancelled.is_set):  # the end of the process waits for the thread
                return load(
                    self.url, self._token, self.set_name, body, request, key=key, patience_seconds=0
                )

        try:
            return await asyncio.to_thread(act)
        except asyncio.CancelledError:
            is_cancelled.set()
            raise
        except Rejected as error:
            if error.status == CONFLICT and error.detail.startswith(REFUSES):
                raise TooManyGone(error.detail.partition(";")[0]) from None
            raise
