"""How a copy is kept: what may be chosen, and what is so if nothing is."""

from pathlib import Path

import msgspec

from rsnotify_client.changelists import POLL_SECONDS
from rsnotify_client.deletions import MAX_DELETE
from rsnotify_client.network import Network
from rsnotify_mirror.paths import Map
from rsnotify_mirror.plan import Selection
from rsnotify_mirror.workers import FIRST_SECONDS

JOBS = 16
PER_HOST = 8
RELIST_SECONDS = 3_600.0  # where there is nothing to follow, the Resource List is read again


class Options(msgspec.Struct, frozen=True):
    """How a copy is kept."""

    selection: Selection = Selection()
    max_delete: float = (
        MAX_DELETE  # percent of the copy that a list or another selection may remove
    )
    maps: tuple[Map, ...] = ()
    jobs: int = JOBS
    per_host: int = PER_HOST
    keep_deleted: Path | None = None
    has_files: bool = True
    same_site: bool = False  # ask for nothing at other hosts
    poll_seconds: float = POLL_SECONDS
    relist_seconds: float = RELIST_SECONDS
    first_retry_seconds: float = FIRST_SECONDS
    network: Network | None = None  # without one, what the environment says
