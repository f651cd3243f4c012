"""An outbox in MariaDB, the server itself: its table, its relays and whole stories."""

from collections.abc import Iterator

import pytest

from tests.soak import databases
from tests.support import mariadb
from tests.support.applications import Story


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mariadb.running(tmp_path_factory.mktemp("mariadb")) as url:
        yield url


@pytest.mark.parametrize("proof", databases.PROOFS, ids=lambda proof: proof.__name__)
def test_an_outbox_in_mariadb_is_published(database, proof):
    databases.prepare(database)
    proof(database)


@pytest.mark.parametrize("orm", ["sqlalchemy", pytest.param("django", marks=pytest.mark.evidence)])
def test_a_hub_holds_what_is_public_in_mariadb(real_hub, database, orm):
    real_hub.add_set(orm)
    ended = Story(real_hub, orm, database, seed=24).run(300)
    assert ended.outcomes["committed"] > 100
    assert ended.outcomes["killed"] > 2
    assert ended.hubs_killed > 0
    assert ended.outcomes["rolled back"] > 20
