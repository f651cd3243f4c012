"""What Destinations were told of a set's documents, and what has to be told next."""

from collections.abc import Iterator, Mapping

import msgspec

from rsnotify.documents.documents import change_list_archive
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import capability_list
from rsnotify.resourcesync.validation.tables import FRAMEWORK_CHANGES


class Told(msgspec.Struct, frozen=True):
    """A set's documents as they were announced."""

    number: int  # how often something was announced
    digest: str  # of the Capability List's bytes
    archive: str = ""  # what the hub's Change List Archive covers; nothing if there is none
    own: Mapping[str, str] = {}  # the Source's own documents, by capability

    def is_same(self, other: "Told") -> bool:
        return msgspec.structs.replace(other, number=self.number) == self


def changes_between(told: Told, now: Told, base: str, set_name: str) -> Iterator[Change]:
    """What a Destination must hear; a document of the Source is new at each new address."""
    if now.digest != told.digest:
        loc = base + capability_list(set_name)
        yield Change(loc, "updated", capability="capabilitylist")
    if now.archive != told.archive:
        change = "deleted" if not now.archive else "updated" if told.archive else "created"
        loc = base + change_list_archive(set_name)
        yield Change(loc, change, capability="changelist-archive")
    for capability, loc in now.own.items():
        if told.own.get(capability) != loc:
            yield Change(loc, FRAMEWORK_CHANGES[capability][0], capability=capability)
