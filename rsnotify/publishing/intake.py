"""The endpoints to which Sources post changes.

Rules that hold here: no body is read before its sender is known to have the right; its length is
limited while it arrives; large bodies are parsed in a thread, so that nobody waits for them.
Nothing here knows how a body is judged, or how changes are stored.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.access.access import Access
from rsnotify.access.bearer import Bearer
from rsnotify.errors import Fault, Rejected, StoreFull, TryAgain
from rsnotify.http.endpoints import JsonResponse, decoded, read_body
from rsnotify.journal.submission import Submission
from rsnotify.live.journals import Journals
from rsnotify.publishing.bodies import BODY_BYTES, PARTS, read_submission, read_submissions
from rsnotify.resourcesync.notification import ChannelName, Interval

BESIDE_THE_LOOP_BYTES = 256 * 1024
BESIDE_THE_LOOP = asyncio.Semaphore(2)  # a body of 8 MiB takes some 250 MiB while it is read


log = logging.getLogger(__name__)

Answer = dict[str, object]
Read = TypeVar("Read")


class RefusedCounts:
    """Requests to publish that were refused, counted by their status."""

    def __init__(self, why_full: Callable[[], str] = lambda: "") -> None:
        self._why_full = why_full
        self.by_status = dict.fromkeys((400, 401, 403, 404, 409, 413, 415, 429, 503, 507), 0)

    def note(self, error: Rejected | TryAgain) -> Rejected | TryAgain:
        """Count the refusal by its status, and return it."""
        error = self.judged(error)
        self.by_status[error.status] = self.by_status.get(error.status, 0) + 1
        return error

    def judged(self, error: Rejected | TryAgain) -> Rejected | TryAgain:
        """The error to answer: if Redis has ended because its disk is full, that is the reason.

        The operator reads of what is full in the log, too: only there is room made.
        """
        if type(error) is TryAgain and (full := self._why_full()):
            error = StoreFull(f"nothing was stored: {full}")
        if isinstance(error, StoreFull):
            log.warning("a publish got 507: %s", error.detail)
        return error


class Intake:
    """The two endpoints of a set: its changes, and those of its documents."""

    def __init__(
        self, journals: Journals, access: Access, refused: RefusedCounts | None = None
    ) -> None:
        self._journals = journals
        self._access = access
        self.refused = RefusedCounts() if refused is None else refused

    def changes(self, request: Request) -> Awaitable[Response]:
        """Publish changes of resources."""
        return self.publish(request, ChannelName(request.path_params["set"], "change"))

    def framework(self, request: Request) -> Awaitable[Response]:
        """Publish changes of capability documents."""
        return self.publish(request, ChannelName(request.path_params["set"], "framework"))

    async def publish(
        self, request: Request, channel: ChannelName, *, in_address: bool = False, status: int = 201
    ) -> Response:
        """Publish what the request carries, and answer its sender with this status."""
        name, kind = channel.set_name, channel.kind
        try:
            bearer = await self._access.require_publisher(request, name, in_address=in_address)
            await self._journals.learn_of(name)
            self._journals.feed(channel)  # an unknown set is refused before the body is read
            submission = await read_with(request, partial(read_submission, kind))
            bearer = await self._access.still(request, bearer, in_address=in_address)
            bearer.require("publish", name)
            others = self._journals.other_sets_of(channel, submission)
            _require_right_to(others, bearer)
            interval = await self._journals.publish(channel, submission, others)
        except (Rejected, TryAgain) as error:
            raise self.refused.note(error) from error.__cause__
        return JsonResponse(accepted(submission, interval), status)


def _require_right_to(others: Collection[str], bearer: Bearer) -> None:
    if not all(bearer.may("publish", name) for name in others):
        detail = "a Source Description change goes to every set: it needs a token for all"
        raise Rejected(detail, status=403)


def accepted(submission: Submission, interval: Interval) -> Answer:
    answer: Answer = {
        "accepted": len(submission.fragments),
        "from": str(interval.from_),
        "until": str(interval.until),
    }
    if submission.not_kept:
        answer["not_kept"] = submission.not_kept
    return answer


async def read_with(request: Request, read: Callable[[bytes, str, str | None], Read]) -> Read:
    """Read the body and parse it; in a thread if it is large, or may be once unpacked."""
    headers = request.headers
    content_type, key = headers.get("content-type", ""), headers.get("idempotency-key")
    encoding = headers.get("content-encoding", "")
    body = await read_body(request, BODY_BYTES, PARTS)
    if not encoding and len(body) <= BESIDE_THE_LOOP_BYTES:
        return read(body, content_type, key)

    def unpack_and_read() -> Read:
        return read(decoded(body, encoding, BODY_BYTES), content_type, key)

    async with BESIDE_THE_LOOP:
        return await asyncio.to_thread(unpack_and_read)


KEY_IS_TAKEN = 409  # it was used for other changes, so a repetition with it would be refused too

Results = Mapping[ChannelName, Interval | BaseException]


class SeveralSets:
    """The endpoint that publishes to several sets at once."""

    def __init__(self, journals: Journals, access: Access, refused: RefusedCounts) -> None:
        self._journals = journals
        self._access = access
        self._refused = refused

    async def changes(self, request: Request) -> Response:
        """Publish to several sets at once; each change names its own."""
        try:
            return await self._changes(request)
        except (Rejected, TryAgain) as error:
            raise self._refused.note(error) from error.__cause__

    async def _changes(self, request: Request) -> Response:
        bearer = await self._access.require_bearer(request)
        self._access.count_publish(bearer)
        by_set = await read_with(request, read_submissions)
        await self._check_sets(await self._access.still(request, bearer), by_set)
        submissions = {ChannelName(name, "change"): each for name, each in by_set.items()}
        results = await self._journals.publish_each(submissions)
        return JsonResponse(answer_of(submissions, results), 201)

    async def _check_sets(self, bearer: Bearer, names: Mapping[str, object]) -> None:
        """The right comes before the set itself: strangers must not learn which sets there are."""
        for name in names:
            bearer.require("publish", name)
        await self._journals.learn_of(*names)
        unknown = [name for name in names if name not in self._journals.sets]
        if unknown:
            faults = [Fault(field="sets", message=f"there is no set {name!r}") for name in unknown]
            more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
            raise Rejected(f"there is no set {unknown[0]!r}{more}", status=404, faults=faults)


def answer_of(submissions: Mapping[ChannelName, Submission], results: Results) -> dict[str, object]:
    """What became of every set; the first failure, if there is one, says what was stored."""
    stored: dict[str, object] = {}
    for channel, result in results.items():
        if isinstance(result, Interval):
            stored[channel.set_name] = accepted(submissions[channel], result)
    failed = {
        channel.set_name: result
        for channel, result in results.items()
        if isinstance(result, BaseException)
    }
    if failed:
        raise _incomplete(failed, stored, next(iter(submissions.values())).key)
    return {"sets": stored}


def _incomplete(
    failed: Mapping[str, BaseException], stored: Mapping[str, object], key: str | None
) -> BaseException:
    name, error = next(iter(failed.items()))
    if not isinstance(error, TryAgain | Rejected):
        return error
    detail = f"{name}: {error.detail}; stored for {', '.join(stored) or 'no set'}"
    if isinstance(error, Rejected) and error.status == KEY_IS_TAKEN:
        return Rejected(detail, status=error.status)
    detail += ": repeat all with the same key" if key else ": repeat only what is not stored"
    if isinstance(error, Rejected):
        return Rejected(detail, status=error.status)
    return error.saying(detail)
