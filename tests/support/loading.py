"""Loads of a set's whole state, without a process around them: on a real Redis, sent bit by bit."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp

from rsnotify.access.access import Access
from rsnotify.access.tokens import Tokens
from rsnotify.process.app import build_app, resource_routes
from rsnotify.publishing.loads.load_chores import LoadKeeper
from rsnotify.publishing.loads.load_endpoint import Reception, Resources
from rsnotify.publishing.loads.load_store import Loads
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import spell_out
from tests.support.pulling import CHANGES, SET, Pulling, loc
from tests.support.running import TOKEN

PATH = f"/api/sets/{SET}/resources"
NDJSON = "application/x-ndjson"


def ndjson(names: Iterable[str], **fields: object) -> bytes:
    return b"".join(json.dumps({"loc": loc(name)} | fields).encode() + b"\n" for name in names)


class Upload:
    """A PUT whose body comes when the test sends it."""

    def __init__(self, app: ASGIApp, query: str, headers: dict[str, str]) -> None:
        self._parts: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._messages: list[dict[str, Any]] = []
        sent = {"authorization": f"Bearer {TOKEN}", "content-type": NDJSON} | headers
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "PUT",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("192.0.2.1", 1234),
            "server": ("hub.example.org", 80),
        }
        self._task = asyncio.create_task(self._run(app, scope))

    async def _run(self, app: ASGIApp, scope: dict[str, Any]) -> None:
        async def send(message: dict[str, Any]) -> None:
            self._messages.append(message)

        await app(scope, self._parts.get, send)

    def send(self, body: bytes, *, is_last: bool = False) -> None:
        self._parts.put_nowait({"type": "http.request", "body": body, "more_body": not is_last})

    def break_off(self) -> None:
        self._parts.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> tuple[int, Any]:
        await self._task
        body = b"".join(message.get("body", b"") for message in self._messages[1:])
        return self._messages[0]["status"], json.loads(body) if body else None


class Loading(Pulling):
    """One hub process's worth of objects, with loads."""

    def __init__(self, client: Client, *, token_seconds: float = 2.0, **given: Any) -> None:
        """What is given goes to the endpoints of loads."""
        super().__init__(client)
        self.loads = Loads(client, self.journal.usage)
        self.keeper = LoadKeeper(self.hub, self.loads, self.upkeep.snapshots.take)
        access = Access(Tokens(client), TOKEN, token_seconds=token_seconds)
        objects = (self.hub, access, self.loads, self.keeper)
        self.loading_app = build_app(resource_routes(Resources(*objects, **given)))
        eager = Reception(piece_bytes=1, gathered_resources=1)
        self.eager_app = build_app(resource_routes(Resources(*objects, reception=eager)))
        """Stages each piece as soon as it is read: the other waits for thousands of resources."""

    def upload(self, query: str = "", *, is_eager: bool = False, **headers: str) -> Upload:
        """A load; an eager one is staged piece by piece."""
        sent = {name.replace("_", "-"): text for name, text in headers.items()}
        return Upload(self.eager_app if is_eager else self.loading_app, query, sent)

    async def put(self, body: bytes, query: str = "", **headers: str) -> tuple[int, Any]:
        upload = self.upload(query, **headers)
        upload.send(body, is_last=True)
        return await upload.answer()

    async def ask(self, path: str, **headers: str) -> tuple[int, Any]:
        """Status and content of a GET."""
        answer = await self.get(path, app=self.loading_app, **headers)
        return answer.status, json.loads(answer.body)

    async def load(self, body: bytes, query: str = "", **headers: str) -> Any:
        """What is answered to a load that is done."""
        status, answer = await self.put(body, query, **headers)
        assert (status, answer.get("stage")) in ((200, "done"), (200, "compared")), answer
        return answer

    @asynccontextmanager
    async def under_way(
        self, body: bytes, query: str = "", *, key: str = ""
    ) -> AsyncIterator[Upload]:
        """A load of which this much is staged when the block begins; its body ends with it."""
        named = {"idempotency_key": key} if key else {}
        upload = self.upload(query, is_eager=True, **named)
        upload.send(body)
        while await self.staged() < body.count(b"\n"):
            await asyncio.sleep(0.005)
        yield upload
        upload.send(b"", is_last=True)

    async def staged(self) -> int:
        shards = [key async for key in self.client.scan_iter("*:load:staged:*")]
        return sum([await self.client.hlen(shard) for shard in shards])

    async def leavings(self) -> list[bytes]:
        """What there is of loads besides their outcomes and their moments."""
        found = [key async for key in self.client.scan_iter("*load*")]
        marks = await self.client.hexists(f"rsnotify:{{{SET}}}:change:record", "load")
        kept = (b":load:last", b":load:key:", b":load:moment", b":load:since")
        left = [key for key in found if not any(each in key for each in kept)]
        return sorted(left) + [b"mark"] * marks

    async def told(self) -> Sequence[Change]:
        """Every change of the set, in order."""
        created = (await self.windows.record(SET)).created
        rows = await self.journal.read(CHANGES, created, count=10_000)
        return [_change(fragment) for _, fragment in rows]

    async def known(self) -> dict[str, bytes]:
        """The state: names of the resources, and what is kept of each."""
        found: dict[str, bytes] = {}
        async for key in self.client.scan_iter(f"rsnotify:{{{SET}}}:state:*"):
            found |= {
                name.decode().rpartition("/")[2]: spell_out(kept)
                for name, kept in (await self.client.hgetall(key)).items()
            }
        return dict(sorted(found.items()))


def _change(fragment: bytes) -> Change:
    def between(before: bytes, after: bytes) -> str:
        return fragment.partition(before)[2].partition(after)[0].decode()

    return Change(between(b"<loc>", b"</loc>"), between(b'change="', b'"'))


def said(changes: Iterable[Change]) -> list[tuple[str, str]]:
    return sorted((change.change, change.loc.rpartition("/")[2]) for change in changes)
