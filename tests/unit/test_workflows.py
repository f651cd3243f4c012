"""The jobs of .github/workflows: what they call is there, and who holds a key runs nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools.evidence import parts, soaks

ROOT = Path(__file__).parents[2]
TEXTS = {path.name: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}
WORKFLOWS: dict[str, Any] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
JOBS = [(name, job) for name, each in WORKFLOWS.items() for job in each["jobs"]]
RELEASE = WORKFLOWS["release.yml"]["jobs"]
PINNED = re.compile(r"uses: (?!\./)\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


def steps(workflow: str, job: str) -> list[dict[str, Any]]:
    return WORKFLOWS[workflow]["jobs"][job].get("steps", [])


@pytest.mark.parametrize(("workflow", "job"), JOBS)
def test_a_job_calls_what_there_is(workflow, job):
    for step in steps(workflow, job):
        for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
            assert target in TARGETS
        for script in re.findall(r"(?<!\S)(\.ci/\S+)", step.get("run", "")):
            assert (ROOT / script).is_file()
    called = WORKFLOWS[workflow]["jobs"][job].get("uses")
    if called:
        assert "workflow_call" in WORKFLOWS[Path(called).name][True]  # `on` is a yes in YAML


def test_every_proof_and_every_measurement_is_run_by_a_job():
    runs = " ".join(step.get("run", "") for name, job in JOBS for step in steps(name, job))
    for target in ("test", "evidence", "simulate", "fuzz", "soak", "bench", "test-versions"):
        assert f"make {target} " in runs
    assert "make simulate SECONDS=600 LONG=yes " in runs
    proofs = WORKFLOWS["soak.yml"]["jobs"]["soak"]["strategy"]["matrix"]["proof"]
    assert proofs == soaks()
    names = {part.name for part in parts(full=True)} - {f"soak {proof}" for proof in proofs}
    assert names == {"new histories", "long histories", "fuzzing", "release", "versions"}
    assert "make release-check " in runs


def test_what_takes_longer_waits_for_the_lint_and_ends_where_a_push_overtakes_it():
    checks = WORKFLOWS["checks.yml"]
    assert checks["concurrency"]["cancel-in-progress"] is True
    assert {job for job, each in checks["jobs"].items() if each.get("needs") != "lint"} == {"lint"}
    systems = checks["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert any("macos" in each[True] for each in systems)  # `on` is a yes in YAML
    assert "make test PYTHON=python3" in str(checks["jobs"]["test"]["steps"])


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_no_workflow_may_write_but_for_a_job_that_says_so(workflow):
    assert WORKFLOWS[workflow]["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(("workflow", "job"), JOBS)
def test_a_job_that_may_write_runs_nothing_of_ours_or_of_others_packages(workflow, job):
    """Whatever runs there may sign a release, or publish one."""
    permissions = WORKFLOWS[workflow]["jobs"][job].get("permissions", {})
    if "write" in permissions.values():
        assert all("run" not in step for step in steps(workflow, job))
        assert all("checkout" not in step["uses"] for step in steps(workflow, job))


def test_every_action_of_a_release_is_the_one_that_was_looked_at():
    """A tag can be moved, a commit cannot."""
    uses = re.findall(r"(?m)uses: (?!\./).*$", TEXTS["release.yml"])
    assert len(uses) > 5
    assert [each for each in uses if not PINNED.match(each)] == []


def test_nothing_is_published_that_the_checks_and_the_images_have_not_passed():
    def before(job: str) -> set[str]:
        needs = RELEASE[job].get("needs", [])
        named = {needs} if isinstance(needs, str) else set(needs)
        return named.union(*map(before, named))

    passed = before("publish")
    assert {"checks", "images", "build", "attest"} <= passed
    assert {RELEASE[job]["uses"] for job in passed if "uses" in RELEASE[job]} == {
        "./.github/workflows/checks.yml",
        "./.github/workflows/images.yml",
    }
