"""A Source of a test's own, and a bridge from it."""

from contextlib import closing

from clients.python.tests.bridge.bridging import Bridging
from rsnotify_bridge.memory import BridgeStore, Facts
from tests.support.odd import OddSource
from tests.support.sources import Source


class BridgedSource(OddSource[Facts]):
    """Of what is published, nothing is called deleted that is not."""

    def __init__(self, source: Source, bridging: Bridging, name: str) -> None:
        super().__init__(source, name)
        self.bridging = bridging

    async def look(self) -> Facts:
        """At all that there is."""
        if self.bridging.state.exists():
            self.bridging.forget_comparison()
        facts = await self.bridging.once(self.address, **self.options)
        self.check_deletions()
        return facts

    def release(self) -> None:
        with closing(BridgeStore(self.bridging.state, is_writer=False)) as memory:
            memory.all()[0].release()

    def check_deletions(self) -> None:
        called = {loc for change, loc in self.bridging.told() if change == "deleted"}
        assert called <= self.ever_gone, f"{called - self.ever_gone} is not deleted"

    def check_state(self) -> None:
        """What is published is what there is."""
        set_name = self.bridging.set_name
        self.bridging.hub.ask("POST", f"/api/sets/{set_name}/snapshot")
        assert {*self.bridging.resources()} == {self.locs.get(n, self.loc(n)) for n in self.has}
