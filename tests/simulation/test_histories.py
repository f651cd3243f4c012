"""Histories whose seeds are fixed; `make simulate` runs new ones."""

import subprocess
import sys

import pytest

from tests.simulation.known import FAULTS, Fault
from tests.support.needs import COMPILER, need

SEEDS = 2
SCENARIOS = (
    "lost_and_repeated",
    "cut_answers",
    "crashed_hub",
    "refusing_redis",
    "lost_connections",
    "moved_clock",
    "slow_readers",
    "private_set",
    "renewed_lease",
    "refusing_receiver",
)


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    need(*COMPILER)


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_what_was_acknowledged_reaches_everybody_in_every_history() -> None:
    done = simulate(*SCENARIOS, "--first", "1", "--count", str(SEEDS))
    assert done.returncode == 0, done.stdout


def test_a_seed_gives_the_same_history_again() -> None:
    first, second = (
        [
            line
            for line in simulate("crashed_hub", "--seed", "7").stdout.splitlines()
            if "  " in line
        ]
        for _ in range(2)
    )
    assert len(first) > 10
    assert first == second


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_changes_the_code_as_it_is(fault: Fault) -> None:
    path, broken = fault.broken()
    assert broken != path.read_text()


@pytest.mark.parametrize("name", ["forgotten_key", "refusal_taken_for_success"])
def test_a_planted_fault_is_found(name: str) -> None:
    """It ends with the first; which one that is depends on the addresses of the machine."""
    done = simulate("--fault", name, "--first", "1", "--count", "100")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "again: make simulate" in done.stdout
