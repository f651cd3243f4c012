"""What several files of these tests begin with."""

from collections.abc import AsyncIterator

import pytest

from rsnotify.redis_client import Client
from tests.support.pulling import Pulling


@pytest.fixture
async def pulling(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[Pulling]:
    """A hub with one empty set, whose windows close with the third change; tests give sizes."""
    async with Pulling(client, changes=3, **getattr(request, "param", {})) as found:
        yield found
