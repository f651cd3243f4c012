"""Everything that a hub process keeps in Redis, by subject. Nothing here connects yet."""

from rsnotify.documents.announcements import AnnouncedDescriptions, AnnouncedDocuments
from rsnotify.documents.snapshots import Snapshots
from rsnotify.journal import keys
from rsnotify.journal.bell import Bell
from rsnotify.journal.journal import Journal
from rsnotify.journal.sets import Sets
from rsnotify.journal.windows import Windows
from rsnotify.process.settings import Settings
from rsnotify.publishing.loads.load_store import Loads
from rsnotify.redis_client import connect
from rsnotify.registry.tokens import Tokens
from rsnotify.websub.subscription_store import Subscriptions


class Stores:
    """One object for each subject, on two connections."""

    def __init__(self, settings: Settings, redis_url: str) -> None:
        self._bells: list[Bell] = []
        self._client = connect(redis_url, replicas=settings.replicas)
        # Of its own: publishing never waits for readers.
        self.publishing_client = connect(redis_url, replicas=settings.replicas)
        self.journal = Journal(
            self.publishing_client,
            window_changes=settings.changelist_max,
            window_hours=settings.changelist_hours,
        )
        self.tokens = Tokens(self.publishing_client)
        self.sets = Sets(self._client)
        self.windows = Windows(self._client)
        self.snapshots = Snapshots(self._client)
        self.loads = Loads(self._client)
        self.announced_documents = AnnouncedDocuments(self._client)
        self.announced = AnnouncedDescriptions(self._client)
        self.subscriptions = Subscriptions(
            self._client,
            pending_per_host=settings.pending_per_host,
            pending_per_asker=settings.pending_per_asker,
            per_host=settings.subscriptions_per_host,
            per_asker=settings.subscriptions_per_asker,
        )

    def bell(self, name: str = keys.BELL) -> Bell:
        """A bell of its own for each listener."""
        bell = Bell(self._client, name)
        self._bells.append(bell)
        return bell

    async def doubt_bells(self) -> None:
        """Redis is another one now: strokes may have gone elsewhere."""
        for bell in self._bells:
            bell.doubt()

    async def close(self) -> None:
        await self._client.aclose()
        await self.publishing_client.aclose()
