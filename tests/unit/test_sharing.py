"""Tests that forks share: each is run once, and what became of it is known."""

import os
import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.tools.workers import Left

OUTCOMES = """
import os, tempfile
from pathlib import Path
import pytest

@pytest.fixture(scope="module", params=["here", "there"])
def made(request):
    with Path(__file__).with_name("made").open("a") as file:
        file.write("up\\n")
    yield request.param
    with Path(__file__).with_name("made").open("a") as file:
        file.write("down\\n")

@pytest.mark.parametrize("number", range(10))
def test_passes(made, number, tmp_path):
    assert tmp_path.is_dir() and not [*tmp_path.iterdir()]
    tmp_path.joinpath("file").touch()
    assert os.getcwd().startswith(os.path.realpath(tempfile.gettempdir()))

def test_fails():
    print("said before it fails")
    assert 1 == 2

@pytest.mark.skip(reason="no wish")
def test_is_skipped(): ...

def test_knows_its_worker(worker_id):
    assert worker_id.startswith("gw")
"""
ENDS = """
import os

def test_before(): ...

def test_ends_its_worker():
    os._exit(7)

def test_after(): ...
"""


def ran(folder: Path, *options: str, **files: str) -> tuple[int, str, dict[str, list[str]]]:
    """Exit status, output, and of each test what is reported besides its time."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    report = folder / "report.xml"
    given = (
        "-p",
        "tests.tools.workers",
        "--forks",
        "3",
        f"--junitxml={report}",
        "-p",
        "no:cacheprovider",
    )
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *given, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes = found.setdefault(f"{case.get('classname')}.{case.get('name')}", [])
        outcomes += [each.tag for each in case]
    return done.returncode, done.stdout + done.stderr, found


@pytest.mark.evidence
def test_what_becomes_of_each_test_is_reported_once(tmp_path):
    status, said, found = ran(tmp_path, test_one=OUTCOMES, test_two=OUTCOMES, test_three=ENDS)
    assert status == 1, said
    assert len(found) == 2 * 23 + 3
    assert {name: outcomes for name, outcomes in found.items() if outcomes} == {
        "test_one.test_fails": ["failure"],
        "test_one.test_is_skipped": ["skipped"],
        "test_two.test_fails": ["failure"],
        "test_two.test_is_skipped": ["skipped"],
        "test_three.test_ends_its_worker": ["failure"],
    }
    assert "the worker that ran this ended with status 7" in said
    assert "said before it fails" in said
    made = tmp_path.joinpath("made").read_text().split()
    assert made.count("up") == made.count("down")


@pytest.mark.evidence
def test_a_worker_that_is_killed_costs_its_test_alone(tmp_path):
    killed = ENDS.replace("os._exit(7)", "os.kill(os.getpid(), 9)")
    status, said, found = ran(tmp_path, test_one=killed, test_two=killed, test_three=killed)
    assert status == 1
    assert len(found) == 9
    assert [*found.values()].count(["failure"]) == 3, said


@pytest.mark.evidence
def test_without_a_failure_it_ends_well_and_stops_at_the_first_if_it_is_to(tmp_path):
    good = (
        "import pytest\n@pytest.mark.parametrize('n', range(50))\ndef test_good(n): print('said')\n"
    )
    status, said, found = ran(tmp_path, test_good=good)
    assert (status, len(found), any(found.values())) == (0, 50, False), said
    assert "said" not in said
    status, said, found = ran(tmp_path, "-x", test_good=good.replace("print", "assert n < 0,"))
    assert status == 1
    assert 1 <= len(found) < 50
    assert "stopping after" in said


@pytest.mark.evidence
def test_no_test_is_run_if_one_cannot_be_collected(tmp_path):
    status, said, _ = ran(tmp_path, test_bad="import none_such", test_good="def test_it(): ...")
    assert status == 2
    assert "passed" not in said


@pytest.mark.evidence
@pytest.mark.parametrize("seed", range(5))
def test_every_test_is_given_out_once(seed):
    chance = random.Random(seed)
    numbers = iter(range(200))
    groups = [[next(numbers) for _ in range(chance.randint(1, 20))] for _ in range(9)]
    left, taken, at_work = Left(groups), list[int](), {1, 2, 3}
    while at_work:
        worker = chance.choice([*at_work])
        if (number := left.take(worker)) is None:
            at_work.discard(worker)
        else:
            taken.append(number)
    assert sorted(taken) == [number for group in groups for number in group]


@pytest.mark.evidence
def test_a_worker_stays_in_a_file_and_takes_half_of_another_s_in_the_end():
    left = Left([range(6), range(6, 8)])
    assert [left.take(0), left.take(1), left.take(1), left.take(0)] == [0, 6, 7, 1]
    assert [left.take(1), left.take(1), left.take(0), left.take(0)] == [4, 5, 2, 3]
    left.give_back([5])
    assert [left.take(2), left.take(0)] == [5, None]
