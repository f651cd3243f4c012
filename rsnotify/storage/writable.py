"""Whether Redis takes writes, found out by writing: at most once a second, whoever asks."""

from time import monotonic

from rsnotify.errors import TryAgain
from rsnotify.single_flight import SingleFlight
from rsnotify.storage import keys
from rsnotify.storage.connection import Client

KNOWN_SECONDS = 1.0
KEPT_SECONDS = 60


class Writable:
    """Asks Redis, and remembers its answer for a moment."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asking: SingleFlight[str, str | None] = SingleFlight("write to Redis")
        self._known: tuple[float, str | None] = (float("-inf"), None)

    async def why_not(self) -> str | None:
        """What keeps Redis from writing; None if nothing does."""
        until, answer = self._known
        if monotonic() < until:
            return answer
        return await self._asking.result("", self._ask)

    async def _ask(self) -> str | None:
        answer = None
        try:
            await self._client.set(keys.WRITABLE, 1, ex=KEPT_SECONDS)
        except TryAgain as error:
            answer = error.detail
        self._known = (monotonic() + KNOWN_SECONDS, answer)
        return answer
