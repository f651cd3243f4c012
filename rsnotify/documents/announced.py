"""What of a set's documents has been announced, and what is to be announced next."""

from collections.abc import Iterator, Mapping

import msgspec

from rsnotify.documents.documents import change_list_archive
from rsnotify.resourcesync.change import Change
from rsnotify.resourcesync.notification import capability_list
from rsnotify.resourcesync.validation.tables import FRAMEWORK_CHANGES


class Announced(msgspec.Struct, frozen=True):
    """A set's documents as they were announced."""

    number: int  # how often something was announced
    digest: str  # of the Capability List's bytes
    archive: str = ""  # what the hub's Change List Archive covers; nothing if there is none
    own: Mapping[str, str] = {}  # the Source's own documents, by capability

    def is_same(self, other: "Announced") -> bool:
        return msgspec.structs.replace(other, number=self.number) == self


def changes_between(
    announced: Announced, now: Announced, base: str, set_name: str
) -> Iterator[Change]:
    """What is to be announced; a document of the Source is new at each new address."""
    if now.digest != announced.digest:
        loc = base + capability_list(set_name)
        yield Change(loc, "updated", capability="capabilitylist")
    if now.archive != announced.archive:
        change = "deleted" if not now.archive else "updated" if announced.archive else "created"
        loc = base + change_list_archive(set_name)
        yield Change(loc, change, capability="changelist-archive")
    for capability, loc in now.own.items():
        if announced.own.get(capability) != loc:
            yield Change(loc, FRAMEWORK_CHANGES[capability][0], capability=capability)
