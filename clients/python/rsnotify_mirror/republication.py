"""What is said of a copy that is published: by its own addresses, and where it comes from. Pure.

Rules that hold here: only what was verified and stored is said of a resource; a chain keeps the
link to its beginning.
"""

from typing import Any, NamedTuple, Self
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from rsnotify.resourcesync.change import Change, ChangeKind, Link, Position, as_ascii
from rsnotify_client.folder import checked_base
from rsnotify_client.moments import exact
from rsnotify_client.network import without_login
from rsnotify_client.provenance import VIA, publishable, with_via
from rsnotify_client.resource import SourceResource, digests
from rsnotify_client.token import Token
from rsnotify_mirror.plan import Have, kept_links

PATIENCE_SECONDS = 60.0


class Republication(msgspec.Struct, frozen=True):
    """A set of a hub that a copy is published to; `base` is where the copy's directory is served.

    The set belongs to the copy: whatever else it has is deleted from it, within the delete guard.
    `once` waits so long for a hub that takes nothing.
    """

    hub: str
    set_name: str
    base: str
    token: Token | None = None
    patience_seconds: float = PATIENCE_SECONDS


class PublishedPlace(NamedTuple):
    """Where a copy is published, as the copy remembers it."""

    hub: str
    set_name: str
    base: str

    @classmethod
    def of(cls, to: Republication) -> Self:
        return cls(without_login(to.hub.rstrip("/")), to.set_name, checked_base(to.base))

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(*text.split(" "))

    def __str__(self) -> str:
        return " ".join(self)


def described(
    base: str, path: str, wanted: SourceResource, have: Have, kind: ChangeKind = "updated"
) -> Change | None:
    """A change of the copy as its set has it; None if no hub would take its address.

    The Source's datetime is the change's own, as far as the hub can keep it, and its `lastmod`
    where the Source states none.
    """
    at = None if wanted.position is None else str(Position(wanted.position))
    loc, origin = base + quote(path), Link(VIA, as_ascii(wanted.loc))
    if kind == "deleted":
        change = Change(loc, kind, wanted.lastmod or at, at, links=tuple(kept_links(wanted.links)))
        return publishable(with_via(change, origin))[0]
    digest = next(map(":".join, digests(have.hash).items()), None)
    said: Any = {"hash": digest, "length": have.length, "type": wanted.type}
    links = tuple(kept_links(wanted.links))
    change = Change(loc, kind, have.lastmod or at, at, links=links, **said)
    origin = replace(origin, modified=exact(have.lastmod), **said)
    return publishable(with_via(change, origin))[0]
