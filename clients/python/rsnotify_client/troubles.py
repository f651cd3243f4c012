"""Why channels wait: what went wrong, until when nothing is tried, and what the log says of it.

Rules that hold here: a hub that does not answer holds up all channels, every other trouble only its
own. Nothing here sends or waits; time and chance are passed in.
"""

import logging
from typing import NamedTuple

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.notification import ChannelName
from rsnotify_client.answer import HubUnreachable, in_short
from rsnotify_client.retry import delay_seconds

log = logging.getLogger(__name__)

SAY_AGAIN_SECONDS = 60.0


class Trouble(NamedTuple):
    """Why a channel waits, and until when."""

    error: Rejected | TryAgain
    attempt: int
    since: float
    until: float
    said: float


class Troubles:
    """What is in the way of one sender, by channel; None stands for all channels."""

    def __init__(self) -> None:
        self._known: dict[ChannelName | None, Trouble] = {}
        self._eager_since = 0.0

    def __bool__(self) -> bool:
        return bool(self._known)

    def forgive(self, now: float) -> None:
        """Somebody waits: troubles from before are not waited for."""
        self._eager_since = now

    def postpone(
        self,
        channel: ChannelName,
        error: Rejected | TryAgain,
        now: float,
        chance: float,
        *,
        asked: float | None = None,
    ) -> None:
        """The channel is not tried for a while, longer each time.

        `asked` is when that was asked which failed: an answer to what was asked before somebody
        began to wait tells them nothing.
        """
        where = None if isinstance(error, HubUnreachable) else channel
        known = self._known.get(where)
        is_new = known is None or known.since < self._eager_since
        attempt = 0 if known is None or is_new else known.attempt + 1
        pause = max(delay_seconds(attempt, chance), getattr(error, "retry_after_seconds", 0))
        said = 0.0 if known is None else known.said
        if not said or now - said > SAY_AGAIN_SECONDS:
            said = now
            log.warning("%s; it will be tried until it succeeds", _said(error))
        since = now if asked is None else asked
        self._known[where] = Trouble(error, attempt, since, now + pause, said)

    def end(self, channel: ChannelName) -> bool:
        """The hub has taken something; whether that was in doubt."""
        ended = [self._known.pop(where, None) for where in (None, channel)]
        return any(trouble is not None and trouble.said for trouble in ended)

    def pause(self, now: float, longest: float) -> float:
        """Until the next try; trouble that is over without our doing leaves nothing to wait for."""
        self._known = {
            where: trouble for where, trouble in self._known.items() if trouble.until > now
        }
        return min([longest, *(trouble.until - now for trouble in self._known.values())])

    def postponed(self, now: float) -> list[ChannelName] | None:
        """The channels that are not to be tried now; None if none is."""
        waiting = [where for where, each in self._known.items() if self._waits(each, now)]
        return None if None in waiting else [channel for channel in waiting if channel]

    def _waits(self, trouble: Trouble, now: float) -> bool:
        return trouble.until > now and trouble.since >= self._eager_since

    def hopeless(self, since: float) -> Rejected | None:
        """What waiting will not mend."""
        for trouble in list(self._known.values()):
            if isinstance(trouble.error, Rejected) and trouble.since >= since:
                return trouble.error
        return None

    def words(self) -> str:
        """The first of them."""
        said = [_said(trouble.error) for trouble in list(self._known.values())]
        return said[0] if said else "the hub has not answered yet"


def _said(error: Rejected | TryAgain) -> str:
    return in_short(error) if isinstance(error, TryAgain) else error.detail
