"""OAI-PMH: harvest all of a repository once, then what it says has changed.

Rules that hold here: a harvest that breaks off deletes nothing; one that ends before it should is
not taken for whole.
"""

from contextlib import aclosing

from rsnotify_bridge.rules import LocRule, changes_of
from rsnotify_bridge.sources import AGAIN_SECONDS, Piece, Pieces, SourceAdapter
from rsnotify_client.oaipmh import DAY, Harvest, OaiIdentity, OaiRequest, identify
from rsnotify_client.polite import PoliteWeb

LONG_SECONDS = 7 * 86_400.0  # for what its pages skipped while it changed
CONFIRMED = 1_000  # so many records that a harvest left out are asked for one by one


class OaiSource(SourceAdapter):
    """A repository, or a set of it."""

    kind = "OAI-PMH"
    has_changes = True

    def __init__(
        self, web: PoliteWeb, request: OaiRequest, rule: LocRule, said: OaiIdentity
    ) -> None:
        super().__init__(web)
        self._request, self._rule, self._said = request, rule, said
        self._harvest = Harvest(web, request, said.granularity, has_metadata=rule.needs_metadata)
        self.via = request.base
        self.compare_seconds = AGAIN_SECONDS if said.deleted == "no" else LONG_SECONDS
        if said.deleted != "persistent":
            self.remarks.append(
                f"it keeps deleted records: {said.deleted}; deletions are found by harvesting all "
                f"of it every {self.compare_seconds / 86_400:.0f} days"
            )

    @classmethod
    async def find(cls, web: PoliteWeb, address: str, rule: LocRule) -> "OaiSource":
        request = OaiRequest.of(address)
        return cls(web, request, rule, await identify(web, request))

    def how(self) -> str:
        said, request = self._said, self._request
        set_ = f", set {request.set_spec}" if request.set_spec else ""
        unit = "days" if self._harvest.granularity == DAY else "seconds"
        return (
            f"{self._harvest.verb} of {said.name or request.base} with {request.prefix}{set_}; "
            f"datestamps in {unit}; deleted records: {said.deleted}"
        )

    async def state(self) -> Pieces:
        async with aclosing(self._harvested(None)) as pieces:
            async for piece in pieces:
                entries = [entry for entry in piece.entries if entry[1].change != "deleted"]
                yield Piece(entries)

    async def changes(self, cursor: str | None) -> Pieces:
        async with aclosing(self._harvested(cursor)) as pieces:
            async for piece in pieces:
                yield piece
        if self.short is None:  # else it is read again
            yield Piece([], 0, self.cursor)

    async def gone(self, keys: list[str]) -> list[str]:
        """Many a repository skips records when others change between two of its pages."""
        if len(keys) > CONFIRMED:
            return [] if self.short else keys
        return [key for key in keys if not await self._harvest.has(key)]

    async def _harvested(self, cursor: str | None) -> Pieces:
        async with aclosing(self._harvest.pages(cursor)) as pages:
            async for page in pages:
                yield Piece(list(changes_of(page, self._request, self._rule, self.skip)))
        self.cursor, self.short = self._harvest.next_cursor(cursor), self._harvest.shortfall
