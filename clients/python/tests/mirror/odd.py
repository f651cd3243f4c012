"""A Source of a test's own, and a mirror of it."""

from pathlib import Path

from clients.python.tests.mirror.test_mirror import Once, files
from rsnotify_mirror.audit import Audit, audit
from rsnotify_mirror.mirror import AsyncMirror
from rsnotify_mirror.plan import Options
from rsnotify_mirror.report import Event
from tests.support.odd import OddSource
from tests.support.sources import Source


class MirroredSource(OddSource[Once]):
    """Whatever the Source says, no run takes from the copy what there is."""

    def __init__(self, source: Source, copy: Path, name: str) -> None:
        super().__init__(source, name)
        self.copy = copy
        self._ever = set(self._contents())

    def change(self, name: str, content: str = "it has changed") -> None:
        self.source.resources[f"/{self.name}/{name}"] = f"{name}: {content}".encode()

    async def look(self) -> Once:
        """One run of the mirror."""
        before = set(files(self.copy).values())
        self._ever |= set(self._contents())
        events: list[Event] = []
        options = Options(first_retry_seconds=0.01, **self.options)
        async with AsyncMirror(self.address, self.copy, options, report=events.append) as mirror:
            ran = Once(await mirror.once(), events)
        after = set(files(self.copy).values())
        assert not set(self._contents()) & (before - after), "the copy has lost what there is"
        assert after <= self._ever, "the copy has what the Source never had"
        return ran

    async def audit(self) -> Audit:
        return await audit(self.address, self.copy)

    def is_equal(self) -> bool:
        """Whether the copy has what there is, and nothing else."""
        return sorted(files(self.copy).values()) == sorted(self._contents())

    def _contents(self) -> list[bytes]:
        return [self.source.resources[f"/{self.name}/{name}"] for name in self.has]
