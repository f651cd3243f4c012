"""An outbox in PostgreSQL, the server itself: its table, its relays and whole stories."""

from collections.abc import Iterator

import pytest

from tests.soak import databases
from tests.support import postgresql
from tests.support.applications import Story
from tests.support.postgresql import PostgreSQL


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with postgresql.server() as running:
        yield running


@pytest.fixture
def outbox(server: PostgreSQL) -> str:
    """The URL of a database with an empty outbox."""
    databases.prepare(server.url)
    return server.url


@pytest.mark.parametrize("proof", databases.PROOFS, ids=lambda proof: proof.__name__)
def test_an_outbox_in_postgresql_is_published(outbox, proof):
    proof(outbox)


@pytest.mark.parametrize("orm", ["sqlalchemy", "django"])
def test_a_hub_holds_what_is_public_in_postgresql(real_hub, server, orm):
    real_hub.add_set(orm)
    ended = Story(real_hub, orm, server.url, seed=24).run(300)
    assert ended.outcomes["committed"] > 100
    assert ended.outcomes["killed"] > 2
    assert ended.hubs_killed > 0
    assert ended.outcomes["rolled back"] > 20
