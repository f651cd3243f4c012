"""A bridge that publishes to a hub, for each test."""

from pathlib import Path

import pytest

from clients.python.tests.bridge.bridging import Bridging
from tests.support.hub_processes import HubProcess


@pytest.fixture
def bridging(real_hub: HubProcess, set_name: str, tmp_path: Path) -> Bridging:
    return Bridging(real_hub, set_name, tmp_path / "bridge.db")
