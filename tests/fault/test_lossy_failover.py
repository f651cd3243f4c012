"""A failover to a replica that lags: what it has lost is said to everybody who had begun before."""

import pytest

from tests.support.lossy_failover import lossy_failover


@pytest.mark.evidence
@pytest.mark.parametrize("under_load", [False, True], ids=["idle", "under load"])
async def test_a_failover_that_loses_500_changes_says_so_to_everybody_once(tmp_path, under_load):
    outcome = await lossy_failover(tmp_path, hubs=3, changes=500, under_load=under_load)
    print(outcome)
    assert outcome.lost >= 500
