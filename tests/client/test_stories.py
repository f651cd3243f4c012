"""Applications and their relay are killed: the hub holds what the database says is public."""

from pathlib import Path

import pytest

from tests.client.hubs import HubProcess
from tests.support.applications import Story


@pytest.mark.parametrize("orm", ["sqlalchemy", "django"])
def test_a_hub_holds_what_is_public_though_writers_and_relay_are_killed(
    real_hub: HubProcess, tmp_path: Path, orm: str
) -> None:
    real_hub.add_set(orm)
    ended = Story(real_hub, orm, f"sqlite:///{tmp_path / 'papers.db'}", seed=24).run(300)
    assert ended.outcomes["committed"] > 100
    assert ended.outcomes["killed"] > 2
    assert ended.outcomes["rolled back"] > 20
