"""What an inspection finds, and how far it goes."""

import msgspec

from rsnotify.resourcesync.validation.entry_rules import Violation

RESOURCE = "resource"  # the kind of a resource that was compared


class Checked(msgspec.Struct):
    """What became of one address; without an edition it is no document that could be read."""

    document: str
    kind: str
    edition: str | None = None
    violations: list[Violation] = []
    error: str | None = None  # why it could not be judged

    @property
    def outcome(self) -> str:
        if self.violations:
            return f"{len(self.violations)} violation(s)"
        return self.error or "valid"


class Bounds(msgspec.Struct, frozen=True):
    """How far an inspection goes."""

    documents: int = 200
    depth: int = 8  # from the first address
    total_bytes: int = 512 * 1024 * 1024
    samples: int = 20
    sample_bytes: int = 64 * 1024 * 1024
    listen_seconds: float = 3.0
    payloads: int = 100  # of a channel
    pause_seconds: float = 1.0  # a change may be told a moment after it has happened
