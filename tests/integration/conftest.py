"""What several files of these tests begin with."""

from collections.abc import AsyncIterator

import pytest

from rsnotify.redis_client import Client
from tests.support.pulling import Pulling


@pytest.fixture
async def pulling(client: Client) -> AsyncIterator[Pulling]:
    """A hub with one empty set, whose windows close with the third change."""
    async with Pulling(client, changes=3) as found:
        yield found
