"""The fixtures of the Python client's tests, which those of the mirror use too."""

from clients.python.tests.conftest import _no_processes_left, copy, real_hub, set_name, source

__all__ = ["_no_processes_left", "copy", "real_hub", "set_name", "source"]
