"""The fixtures of the Python client's tests, which those of the bridge use too, and bridges."""

from pathlib import Path

import pytest

from clients.python.tests.bridge.bridging import Bridging
from clients.python.tests.conftest import _no_processes_left, copy, real_hub, set_name, source
from tests.support.hub_processes import HubProcess

__all__ = ["_no_processes_left", "copy", "real_hub", "set_name", "source"]


@pytest.fixture
def bridging(real_hub: HubProcess, set_name: str, tmp_path: Path) -> Bridging:
    return Bridging(real_hub, set_name, tmp_path / "bridge.db")
