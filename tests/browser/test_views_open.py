"""A minute of what `make soak SOAK_ARGS=views_open` does for long."""

import pytest

from tests.evidence.soak.views_open import watch

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.evidence]


async def test_no_view_keeps_more_while_50_changes_a_second_come(chromium, page_hub, set_name):
    await watch(page_hub, chromium, seconds=60, rounds=3, set_name=set_name)
