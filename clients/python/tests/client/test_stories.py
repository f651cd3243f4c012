"""Applications, relay and hub are killed: the hub holds what the database says is public."""

import pytest

from tests.support.amount import amount
from tests.support.applications import Story

STEPS = amount(100, evidence=300)


@pytest.mark.evidence
@pytest.mark.parametrize("orm", ["sqlalchemy", "django"])
def test_a_hub_holds_what_is_public_though_all_are_killed(real_hub, tmp_path, orm):
    real_hub.add_set(orm)
    ended = Story(real_hub, orm, f"sqlite:///{tmp_path / 'papers.db'}", seed=24).run(STEPS)
    assert ended.outcomes["committed"] > STEPS / 3
    assert ended.outcomes["killed"] > 0
    assert ended.outcomes["rolled back"] > STEPS / 30  # 15 in the mean; 3 or fewer never come
