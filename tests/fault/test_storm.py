"""A short storm: everything fails once, and one checker reads every history.

`make soak SOAK_ARGS=storm` is the long one. `SOAK_SEED` chooses another order.
"""

import os

import pytest

from tests.evidence.soak.storm import Size, Storm, table

SMALL = Size(seconds=0, readers=12, callbacks=3, publishers=3, pollers=1, changes=10, pace=4)


@pytest.mark.evidence
@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost_and_everybody_is_told_whatever_fails(tmp_path):
    seed = int(os.environ.get("SOAK_SEED", "13"))
    print(f"SOAK_SEED={seed}")
    print(table(await Storm(tmp_path, SMALL, seed).run()))
