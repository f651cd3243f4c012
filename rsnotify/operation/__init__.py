"""What those who watch a hub see: numbers, its state in words, whether it is ready.

Each process counts for itself and reports to the others every two seconds (`reports`), so any of
them can answer for all. The rooms count with plain numbers; nothing here is called where changes
pass.
"""

from pathlib import Path

from rsnotify.access.access import Access
from rsnotify.coordination.bell import Bell
from rsnotify.loops import Loop
from rsnotify.operation.health import Health, Writable, WritableParts
from rsnotify.operation.machine import Machine
from rsnotify.operation.metrics import Metrics
from rsnotify.operation.reports import EventLoopDelay, Identity, Peers, ThisProcess, Watched
from rsnotify.operation.status import Overview, Status
from rsnotify.redis_client import Client

__all__ = ["Watched", "Watching"]


class Watching:
    """Everything that is shown of a hub process."""

    def __init__(
        self,
        identity: Identity,
        watched: Watched,
        access: Access,
        client: Client,
        bell: Bell,
        *,
        machine: Machine,
        disk: Path | None,
        metrics_token: str | None,
    ) -> None:
        journals, overview = watched.journals, Overview(client)
        self._delay = EventLoopDelay()
        self.health = Health(
            journals, watched.channels, Writable(client), WritableParts(client), disk=disk
        )
        self.process = ThisProcess(identity, watched, self._delay, self.health, machine)
        self._peers = Peers(self.process, client, bell)
        self.status = Status(journals, access, self._peers, overview)
        self.metrics = Metrics(journals, access, self._peers, overview, token=metrics_token)

    def loops(self) -> dict[str, Loop]:
        """The loops that run as long as the hub, by name."""
        return {
            "report this process": self._peers.run(),
            "listen to other processes": self._peers.listen(),
            "measure the event loop": self._delay.run(),
            "probe Redis": self.health.run(),
        }
