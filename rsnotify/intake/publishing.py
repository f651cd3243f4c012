"""The way in: what Sources post.

Rules that hold here: nothing of a body is read before its sender is known to be allowed; a body is
capped while it arrives; large ones are read beside the event loop, so that nobody waits for them.
Nothing here knows how a body is judged, nor how changes are stored.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from rsnotify.access import Access
from rsnotify.core.decompression import decoded
from rsnotify.core.submission import BODY_BYTES, Submission, read_submission
from rsnotify.errors import Rejected, TryAgain
from rsnotify.hub import Hub
from rsnotify.resourcesync.notification import ChannelName, Interval, Kind

BESIDE_THE_LOOP_BYTES = 256 * 1024
BESIDE_THE_LOOP = asyncio.Semaphore(2)  # a body of 8 MiB takes some 250 MiB while it is read


Answer = dict[str, object]
Read = TypeVar("Read")


class RefusedCounts:
    """Requests to publish that were refused, counted by their status."""

    def __init__(self) -> None:
        self.by_status: dict[int, int] = {}

    def count(self, status: int) -> None:
        self.by_status[status] = self.by_status.get(status, 0) + 1


class Intake:
    """The two places to publish to."""

    def __init__(self, hub: Hub, access: Access) -> None:
        self._hub = hub
        self._access = access
        self.refused = RefusedCounts()

    async def changes(self, request: Request) -> Response:
        return await self._receive(request, "change")

    async def framework(self, request: Request) -> Response:
        return await self._receive(request, "framework")

    async def _receive(self, request: Request, kind: Kind) -> Response:
        channel = ChannelName(request.path_params["set"], kind)
        return json_response(await self.receive(request, channel), 201)

    async def receive(
        self, request: Request, channel: ChannelName, *, in_address: bool = False
    ) -> Answer:
        """Publish what the request carries; what to tell its sender."""
        try:
            return await self._receive_changes(request, channel, in_address=in_address)
        except (Rejected, TryAgain) as error:
            self.refused.count(error.status)
            raise

    async def _receive_changes(
        self, request: Request, channel: ChannelName, *, in_address: bool
    ) -> dict[str, object]:
        name = channel.set_name
        await self._access.require_publisher(request, name, in_address=in_address)
        self._hub.feed(channel)  # an unknown set is known before the body is read
        submission = await _read_submission(request, channel.kind)
        others = self._hub.also_told(channel, submission)
        for other in others:
            await self._require_right_to(other, request, in_address=in_address)
        interval = await self._hub.publish_to_all(channel, submission, others)
        return accepted(submission, interval)

    async def _require_right_to(self, name: str, request: Request, *, in_address: bool) -> None:
        try:
            await self._access.require(request, "publish", name, in_address=in_address)
        except Rejected as refused:
            detail = "a Source Description change goes to every set: it needs a token for all"
            raise Rejected(detail, status=refused.status, headers=refused.headers) from None


def accepted(submission: Submission, interval: Interval) -> Answer:
    answer: Answer = {
        "accepted": len(submission.fragments),
        "from": str(interval.from_),
        "until": str(interval.until),
    }
    if submission.not_kept:
        answer["not_kept"] = submission.not_kept
    return answer


async def _read_submission(request: Request, kind: Kind) -> Submission:
    def read(body: bytes, content_type: str, key: str | None) -> Submission:
        return read_submission(body, content_type, kind, key)

    return await read_with(request, read)


async def read_with(request: Request, read: Callable[[bytes, str, str | None], Read]) -> Read:
    """What the body is read as; beside the loop if it is large, or may be when it is unpacked."""
    body = await read_body(request, BODY_BYTES)
    content_type = request.headers.get("content-type", "")
    encoding = request.headers.get("content-encoding", "")
    key = request.headers.get("idempotency-key")

    def unpack_and_read() -> Read:
        return read(decoded(body, encoding, BODY_BYTES), content_type, key)

    if len(body) > BESIDE_THE_LOOP_BYTES or encoding:
        async with BESIDE_THE_LOOP:
            return await asyncio.to_thread(unpack_and_read)
    return unpack_and_read()


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; refused as soon as it is known to be too long."""
    if int(request.headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    parts, size, is_last = [], 0, False
    while not is_last:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, is_last = message["body"], not message["more_body"]
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _too_large(limit: int) -> Rejected:
    return Rejected(f"the body exceeds {limit} bytes; post the changes in parts", status=413)


def json_response(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
