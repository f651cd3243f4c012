"""A failover to a replica that lags: nothing is lost that a hub remembers."""

import pytest

from tests.support.lossy_failover import lossy_failover


@pytest.mark.evidence
async def test_a_failover_that_loses_500_changes_loses_none_of_them(tmp_path):
    await lossy_failover(tmp_path, hubs=3, changes=500, under_load=True)
