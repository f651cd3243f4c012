"""`rsnotify publish --between`: the changes between two lists, so that a nightly sitemap pushes.

Rules that hold here: a change that the hub refuses does not keep the others back.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import typer

from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify.resourcesync.change import Change
from rsnotify_client.between import changes_between
from rsnotify_client.listing import Unreadable
from rsnotify_client.publisher import Publisher

AT_ONCE = 1_000
PATIENCE_SECONDS = 60.0


def publish_between(
    url: str, token: str | None, set_name: str, old: str, new: str, max_delete: float
) -> None:
    """Publish what changed; print how much, and end with status 1 if some of it was refused."""
    with _publisher(url, token) as publisher:
        for part in _parts(_changes(old, new, max_delete)):
            for change in part:
                publisher.send(set_name, change)
            _flush(publisher)
        counters = publisher.counters
    changes = "1 change" if counters.published == 1 else f"{counters.published} changes"
    typer.echo(f"accepted {changes} between {old} and {new}")
    if counters.refused:
        raise Rejected(f"the hub refused {counters.refused} of them; see above")


def _publisher(url: str, token: str | None) -> Publisher:
    try:
        return Publisher(url, token)
    except ValueError as error:
        raise InvalidSettings([str(error)]) from None


def _changes(old: str, new: str, max_delete: float) -> Iterator[Change]:
    try:
        yield from changes_between(old, new, max_delete=max_delete)
    except Unreadable as error:
        raise InvalidSettings([error.detail]) from None


def _parts(changes: Iterable[Change]) -> Iterator[list[Change]]:
    each = iter(changes)
    while part := list(islice(each, AT_ONCE)):
        yield part


def _flush(publisher: Publisher) -> None:
    try:
        publisher.flush(PATIENCE_SECONDS)
    except TimeoutError as error:
        raise TryAgain(str(error)) from None
