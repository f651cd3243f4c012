"""A real hub keeps to its own description: schemathesis asks all that it describes, and worse."""

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import pytest

from tests.support.amount import amount
from tests.support.running import TOKEN, clean_environment

OPTIONS = (
    *("--max-examples", "1", "--generation-deterministic", "--no-color"),
    # `what_fits_is_accepted` is stricter in what it expects, and names what a schema cannot say.
    *("--exclude-checks", "positive_data_acceptance"),
)
ROOT = Path(__file__).parents[2]
HOOKS = "tests.protocol.loopback_callbacks"
PHASES = {
    "what is described": ("--phases", "examples,fuzzing"),
    "what fits": (
        *(
            "--phases",
            "fuzzing",
            "--mode",
            "positive",
            "--max-examples",
            str(amount(1, evidence=8)),
        ),
        *("--exclude-method", "HEAD", "--exclude-method", "DELETE"),
    ),
    "whatever is not": (
        *("--phases", "coverage"),
        *("--include-path-regex", "^/api/(tokens|sets/{set}$)"),
    ),
}


@pytest.mark.evidence
@pytest.mark.parametrize("phase", PHASES)
async def test_every_answer_is_as_described(hub, tmp_path, phase):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{hub.url}/api/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}", *OPTIONS, *PHASES[phase]),
        stdout=PIPE,
        stderr=STDOUT,
        cwd=tmp_path,
        env=clean_environment() | {"SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT)},
    )
    said, _ = await process.communicate()
    told = said.decode()
    assert process.returncode == 0, told[:4_000] + told[-2_000:]
    assert " generated, " in told


async def test_the_page_for_people_is_served_with_its_policy(hub):
    status, page = await hub.ask("GET", "/api")
    assert (status, b"<h1>rsnotify" in page) == (200, True)


@pytest.mark.parametrize("key", ["", "two words", "k" * 256])
async def test_a_load_with_a_key_that_is_none_is_refused(hub, key):
    path, headers = "/api/sets/dataset1/resources", {"Idempotency-Key": key}
    status, told = await hub.ask("PUT", path, json=[], headers=headers)
    assert (status, told["detail"][:21]) == (400, "an Idempotency-Key is")
