"""What hub processes tell each other about themselves."""

from rsnotify.journal import keys
from rsnotify.redis_client.connection import Client


class Reports:
    """Sends the reports of this process; a `Bell` of the same name hears those of all."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, report: bytes) -> None:
        """Tell every process. Nothing is stored."""
        await self._client.publish(keys.REPORTS_BELL, report)
