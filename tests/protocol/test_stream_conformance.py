"""The conformance suite of Durable Streams, on what a hub has of the protocol: reading.

The suite makes streams and writes to them; `tests.support.stream_adapter` does that by sets and
publishes. What it demands of writing is not tried.
"""

import asyncio
import json
import os
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path
from typing import NamedTuple

from tests.protocol.test_foreign_receivers import installed
from tests.support.needs import need
from tests.support.running import PATIENT_SECONDS, RunningHub
from tests.support.stream_adapter import adapted

SUITE = ("@durable-streams/server-conformance-tests@0.3.6", "vitest@4")
PROGRAM = """
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({ baseUrl: process.env.SUITE_URL, longPollTimeoutMs: 5000 })
"""
PARTS = (
    *("Read Operations", "Long-Poll", "HTTP Protocol", "Browser Security Headers"),
    *("HEAD Metadata", "Offset Validation", "Protocol Edge Cases", "Caching and ETag"),
    *("Chunking and Large Payloads", "Read-Your-Writes", "SSE Mode", "JSON Mode"),
    "Property-Based Tests .*(Immutability|Offset Validation) Properties",
)
PAGE = Path(__file__).parents[2] / "docs/streams.md"

OF_WRITING = "of writing: an adapter does it, and does not do all that the protocol says"
BINARY = "streams are JSON: there is nothing binary to encode"
DELIBERATE = "refused with 400, as everywhere: a misspelt offset would begin anew without a word"
DOES_NOT_APPLY = {
    "ignore unknown query parameters": DELIBERATE,
    "enforce sequence ordering": OF_WRITING,
    "lexicographic seq ordering": OF_WRITING,
    "reject duplicate seq values": OF_WRITING,
    "case-sensitive seq ordering": OF_WRITING,
    "nosniff on PUT responses": OF_WRITING,
    "nosniff on POST responses": OF_WRITING,
    "return TTL metadata": OF_WRITING,
    "base64": BINARY,
    "Stream-SSE-Data-Encoding header for binary": BINARY,
    "binary data with special bytes": BINARY,
}


class Outcome(NamedTuple):
    cases: int
    passed: list[str]
    failed: dict[str, str]


async def test_what_the_suite_demands_of_reading_is_there(tmp_path):
    """But for what does not apply, which fails: were it mended, its line must go from here."""
    async with (
        RunningHub(tmp_path / "data", long_poll_seconds="3", drain_seconds="0") as hub,
        adapted(hub) as url,
    ):
        found = await outcome(tmp_path, url)
    excused = {
        name: reason
        for name in found.failed
        for words, reason in DOES_NOT_APPLY.items()
        if words in name
    }
    left = {name: said for name, said in found.failed.items() if name not in excused}
    assert left == {}
    unused = [each for each in DOES_NOT_APPLY if not any(each in name for name in excused)]
    assert unused == []
    ran = len(found.passed) + len(found.failed)
    told = f"{found.cases} cases {ran} are about reading; {len(found.passed)} pass"
    assert told in " ".join(PAGE.read_text().split())


async def outcome(folder: Path, url: str) -> Outcome:
    node = need("Node", "node")
    npm = (need("npm"), "install", "--loglevel=error", "--no-fund", "--no-audit")
    there = installed("durable-streams-suite", (*npm, *SUITE, "--prefix"))
    (folder / "node_modules").symlink_to(there / "node_modules")
    (folder / "suite.test.mjs").write_text(PROGRAM)
    words = (
        *("--reporter=json", "--outputFile=found.json", "-t", f"^ ?({'|'.join(PARTS)})"),
        f"--testTimeout={PATIENT_SECONDS * 1000}",  # its own 5 s are too few on a busy machine
    )
    process = await asyncio.create_subprocess_exec(
        *(node, "node_modules/vitest/vitest.mjs", "run", *words),
        cwd=folder,
        env=os.environ | {"SUITE_URL": url},
        stdout=PIPE,
        stderr=STDOUT,
    )
    said, _ = await process.communicate()
    assert (folder / "found.json").exists(), said.decode()[-4_000:]
    (suite,) = json.loads((folder / "found.json").read_text())["testResults"]
    ran = [each for each in suite["assertionResults"] if each["status"] in ("passed", "failed")]
    return Outcome(
        len(suite["assertionResults"]),
        [each["fullName"].strip() for each in ran if each["status"] == "passed"],
        {
            each["fullName"].strip(): each["failureMessages"][0].splitlines()[0]
            for each in ran
            if each["status"] == "failed"
        },
    )
