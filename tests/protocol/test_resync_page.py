"""What docs/resync.md says of the reference client, tried with it."""

import re
from pathlib import Path

import pytest

from tests.protocol.test_reference_client import Destination, Source, snapshot, source, tell
from tests.support.needs import need
from tests.support.running import RunningHub

__all__ = ["source"]  # a fixture

PAGE = (Path(__file__).parents[2] / "docs/resync.md").read_text()
OLD = "2026-01-01T00:00:00Z"
STATE = ".resync-client-status.cfg"


def older(told: dict[str, object]) -> dict[str, object]:
    """A resource that was modified long before it was published."""
    return told | {"lastmod": OLD}


async def begun(hub: RunningHub, source: Source, destination: Destination) -> str:
    """Two old resources, and a first copy of them; the `at` of the Resource List."""
    await tell(hub, *(older(source.write(name, name, "created")) for name in "ab"))
    at = await snapshot(hub)
    said = await destination.run("--baseline")
    assert sorted(destination.files()) == ["a", "b"], said
    return at


@pytest.fixture
def destination(resync: Path, tmp_path: Path, hub: RunningHub, source: Source) -> Destination:
    return Destination(resync, tmp_path, hub, source)


async def test_left_to_itself_it_loses_a_deletion_and_with_from_it_does_not(
    hub, source, destination, tmp_path
):
    at = await begun(hub, source, destination)
    (stored,) = re.findall(r"= ([\d.]+)", (tmp_path / STATE).read_text())
    assert float(stored) == 1_767_225_600.0  # OLD: it stores the newest lastmod
    await tell(hub, source.delete("b"))
    said = await destination.run("--incremental")
    assert sorted(destination.files()) == ["a", "b"], said
    said = await destination.run("--incremental", "--from", at)
    assert sorted(destination.files()) == ["a"], said


@pytest.mark.evidence
async def test_without_delete_files_stay(hub, source, destination):
    at = await begun(hub, source, destination)
    await tell(hub, source.delete("b"), older(source.write("c", "c", "created")))
    destination.command.remove("--delete")
    said = await destination.run("--incremental", "--from", at)
    assert sorted(destination.files()) == ["a", "b", "c"], said


@pytest.mark.evidence
async def test_changes_in_closed_lists_want_from_in_the_address(resync, tmp_path, source):
    async with RunningHub(tmp_path / "data", changelist_max="2") as hub:
        destination = Destination(resync, tmp_path, hub, source)
        at = await begun(hub, source, destination)
        for name in "cde":
            await tell(hub, older(source.write(name, name, "created")))
        said = await destination.run("--incremental", "--from", at)
        assert sorted(destination.files()) == ["a", "b", "e"], said
        place = destination.command.index("--changelist-uri") + 1
        destination.command[place] += f"?from={at}"
        said = await destination.run("--incremental", "--from", at)
        assert sorted(destination.files()) == ["a", "b", "c", "d", "e"], said


async def test_the_script_of_the_page_stays_in_sync(hub, source, destination, resync, tmp_path):
    need("curl")
    (script,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    script = script.replace("https://hub.example.org", hub.url)
    script = script.replace("https://example.org", source.url).replace("=copy", "=destination")
    await begun(hub, source, destination)
    destination.command = ["bash", "-euc", f"PATH={resync.parent}:$PATH\n{script}"]
    for gone, new in ("bc", "cd", "db"):
        await tell(hub, source.delete(gone), older(source.write(new, new, "created")))
        said = await destination.run()
        assert destination.files() == {name: name for name in ("a", new)}, said
