"""Mirrors of every kind of Source, with twenty times the random stories that the tests have."""

import os
import subprocess
import sys

TESTS = "clients/python/tests/client/test_world.py"


def main() -> None:
    worlds = {"SOAK_WORLDS": os.environ.get("SOAK_WORLDS", "40")}
    command = [sys.executable, "-m", "pytest", "-q", TESTS]
    subprocess.run(command, env=os.environ | worlds, check=True)
