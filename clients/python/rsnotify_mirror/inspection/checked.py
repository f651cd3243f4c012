"""What an inspection finds, and how far it goes."""

import msgspec

from rsnotify.resourcesync.validation.entry_rules import Violation

RESOURCE = "resource"  # the kind of a resource that was compared
LINKED = "linked"  # …of what a link `describedby` or `duplicate` leads to
TOKEN_NEEDED = (401, 403)
PACKAGE = "package"  # …of a ZIP


class Checked(msgspec.Struct):
    """What became of one address; without an edition it is no document that could be read."""

    document: str
    kind: str
    edition: str | None = None
    violations: list[Violation] = []
    error: str | None = None  # why it could not be judged, or not to its end
    note: str | None = None  # what else there is to say

    @property
    def outcome(self) -> str:
        if self.violations:
            return counted(len(self.violations), "violation")
        return self.error or self.note or "valid"


class Bounds(msgspec.Struct, frozen=True):
    """How far an inspection goes."""

    documents: int = 200
    depth: int = 8  # from the first address
    total_bytes: int = 512 * 1024 * 1024
    entries: int = 200_000  # of indexes, Capability Lists and dumps, which are kept in memory
    samples: int = 20
    sample_bytes: int = 64 * 1024 * 1024
    links: int = 20
    packages: int = 20
    package_bytes: int = 256 * 1024 * 1024  # of all packages together
    unpacked_bytes: int = 1024 * 1024 * 1024  # …of what is in them
    listen_seconds: float = 3.0
    payloads: int = 100  # of a channel
    pause_seconds: float = 1.0  # a change may be stated a moment after it has happened


def counted(number: int, name: str) -> str:
    """As it is said: 1 violation, 2 violations."""
    return f"{number} {name}{'' if number == 1 else 's'}"
