"""Hubs on a real Redis without a process around them, and what is published to them."""

from rsnotify.coordination.bell import Bell
from rsnotify.journal.journal_store import JournalStore
from rsnotify.journal.submission import Submission, fragment_of
from rsnotify.live.journals import Journals
from rsnotify.redis_client import Client, connect
from rsnotify.resourcesync.change import Change
from rsnotify.sets.records import Sets


def hub_on(client: Client, *, window_changes: int = 10_000) -> Journals:
    """It has read nothing yet, and hears no bell."""
    journal = JournalStore(client, window_changes=window_changes)
    return Journals(journal, Sets(client), Bell(connect("redis://none")), base_url="http://hub")


async def started(client: Client, *, window_changes: int = 10_000) -> Journals:
    hub = hub_on(client, window_changes=window_changes)
    await hub.start()
    return hub


def submission(
    *names: str, key: str | None = None, change: str = "updated", **fields: str
) -> Submission:
    changes = [Change(f"http://example.com/{name}", change, **fields) for name in names]
    return Submission([fragment_of(each) for each in changes], key, "fingerprint" if key else "")
