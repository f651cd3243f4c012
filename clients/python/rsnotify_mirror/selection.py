"""Which resources a copy shall hold, and what a change means for such a part. Pure.

Rules that hold here: a list says all of a resource, so one without a type has none. A change may
say less than the lists do: where it names no type, or no collection, what the copy knows of the
resource still holds, unless the change says what the resource was before. A part never loses what
nothing says has left it.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from rsnotify.resourcesync.change import Link
from rsnotify.resourcesync.change_filter import FORMER, Filter
from rsnotify_client.address import canonical
from rsnotify_client.resource import SourceResource
from rsnotify_client.wanted import wanted_of

COLLECTION = "collection"


class Selection(msgspec.Struct, frozen=True):
    """Which resources the copy shall hold: those below one of the prefixes, of one of the types and
    in one of the collections, that some glob selects and none excludes. A hub sends no others."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    type: tuple[str, ...] = ()
    collection: tuple[str, ...] = ()

    @property
    def wanted(self) -> Filter | None:
        """What a hub is asked for."""
        return _filter_of(self.prefix, self.type, self.collection)

    @property
    def by_address(self) -> Filter | None:
        """What a hub is asked for that does not say of its changes what resources were."""
        return _filter_of(self.prefix, (), ())

    @property
    def looks_back(self) -> bool:
        """Whether a resource may leave the part and still be there."""
        return bool(self.type or self.collection)

    def takes(self, loc: str) -> bool:
        """A glob may match the address as it is written, or in the canonical way; a prefix matches
        it as it is written, as at a hub."""
        if self.prefix and not loc.startswith(self.prefix):
            return False
        is_selected = not self.select or _matches(loc, self.select)
        return is_selected and not (self.exclude and _matches(loc, self.exclude))

    def fits(self, wanted: SourceResource) -> bool:
        """Whether it has one of the types and is in one of the collections."""
        if (asked := self.wanted) is None or not asked.looks_back:
            return True
        return asked.wants(wanted.type, (link.href for link in collections_of(wanted)))

    def has(self, loc: str, known: SourceResource) -> bool:
        """Whether a resource of the copy belongs to the part, as far as is known."""
        return self.takes(loc) and (known.is_deleted or self.fits(known))

    def part_of(
        self, changes: Iterable[SourceResource], known: Mapping[str, SourceResource]
    ) -> list[SourceResource]:
        """What these changes mean for the part, in order, by what was known of it; its keys
        are canonical. What has left the part is deleted."""
        taken = [each for each in changes if self.takes(each.loc)]
        if not self.looks_back:
            return taken
        known, meant = dict(known), list[SourceResource]()
        for change in taken:
            name = canonical(change.loc)
            before = known.pop(name, None)
            whole = change if before is None else completed(change, before)
            if not whole.is_deleted and self.fits(whole):
                known[name] = whole
                meant.append(whole)
            elif before is not None:
                meant.append(SourceResource(change.loc, "deleted", position=change.position))
        return meant

    def __str__(self) -> str:
        """As on the command line; empty if all is selected."""
        words = [
            *as_words("--prefix", self.prefix),
            *as_words("--type", self.type),
            *as_words("--collection", self.collection),
            *as_words("--select", self.select),
            *as_words("--exclude", self.exclude),
        ]
        if not words:
            return ""
        import shlex  # noqa: PLC0415 - seldom needed

        return shlex.join(words)


def completed(change: SourceResource, known: SourceResource) -> SourceResource:
    """A change that may say less than what is known, with what still holds of that."""
    if change.is_deleted or any(link.rel == FORMER for link in change.links):
        return change
    kept = () if collections_of(change) else collections_of(known)
    return replace(change, type=change.type or known.type, links=(*change.links, *kept))


def collections_of(wanted: SourceResource) -> tuple[Link, ...]:
    return tuple(link for link in wanted.links if link.rel == COLLECTION)


def as_words(option: str, values: Iterable[str]) -> list[str]:
    """An option of the command line, given once for each value."""
    return [word for value in values for word in (option, value)]


def _matches(loc: str, globs: Iterable[str]) -> bool:
    written = {loc, canonical(loc)}
    return any(fnmatchcase(each, glob) for glob in globs for each in written)


@lru_cache(16)
def _filter_of(
    prefix: tuple[str, ...], types: tuple[str, ...], collection: tuple[str, ...]
) -> Filter | None:
    return wanted_of(prefix or None, types or None, None, collection or None)
