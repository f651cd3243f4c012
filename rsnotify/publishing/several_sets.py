"""`POST /api/changes`: one submission for several sets, each change naming its own.

Nothing is stored before the token's right to every set is known. Each set gets its changes in one
atom; all sets together are no atom: if some fail, the answer says which, and a repetition with the
same key completes the rest.
"""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from rsnotify.errors import Fault, Rejected, TryAgain
from rsnotify.http.json_response import JsonResponse
from rsnotify.journal.hub import Hub
from rsnotify.journal.submission import Submission
from rsnotify.publishing.bodies import read_submissions
from rsnotify.publishing.intake import RefusedCounts, accepted, read_with
from rsnotify.registry.access import Access
from rsnotify.resourcesync.notification import ChannelName, Interval

KEY_IS_TAKEN = 409  # it was used for other changes, so a repetition with it would be refused too

Results = Mapping[ChannelName, Interval | BaseException]


class SeveralSets:
    """Publishing to several sets at once."""

    def __init__(self, hub: Hub, access: Access, refused: RefusedCounts) -> None:
        self._hub = hub
        self._access = access
        self._refused = refused

    async def changes(self, request: Request) -> Response:
        try:
            return await self._changes(request)
        except (Rejected, TryAgain) as error:
            self._refused.count(error.status)
            raise

    async def _changes(self, request: Request) -> Response:
        await self._access.require_token(request)
        self._access.count_publish(request)
        by_set = await read_with(request, read_submissions)
        await self._check_sets(request, by_set)
        submissions = {ChannelName(name, "change"): each for name, each in by_set.items()}
        results = await self._hub.publish_each(submissions)
        return JsonResponse(answer_of(submissions, results), 201)

    async def _check_sets(self, request: Request, names: Mapping[str, object]) -> None:
        """A right to a set is asked for first: strangers do not learn which sets there are."""
        for name in names:
            await self._access.require(request, "publish", name)
        unknown = [name for name in names if name not in self._hub.sets]
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
    told = f"{name}: {error.detail}; stored for {', '.join(stored) or 'no set'}"
    if isinstance(error, Rejected) and error.status == KEY_IS_TAKEN:
        return Rejected(told, status=error.status)
    told += ": repeat all with the same key" if key else ": repeat only what is not stored"
    if isinstance(error, Rejected):
        return Rejected(told, status=error.status)
    return type(error)(told, retry_after_seconds=error.retry_after_seconds)
