"""A short form of `make soak SOAK_ARGS=storm`: each trouble once, few peers, the same checker."""

from pathlib import Path

import pytest

from tests.soak.storm import Size, storm

SEED = 11


@pytest.mark.timeout(300)
async def test_through_every_trouble_all_histories_agree_with_the_journal(tmp_path: Path) -> None:
    size = Size(0, readers=6, callbacks=3, publishers=3, pollers=1)
    rows = dict(await storm(tmp_path, size, SEED))
    troubles = ("hub killed", "worker killed", "worker frozen", "redis killed", "redis frozen")
    assert [rows[each] for each in (*troubles, "redis full", "workers replaced")] == [1] * 7
    assert rows["acknowledged, each there once"] > 0
