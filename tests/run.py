"""Run every check of the project and count them; this is `make test`.

All of them run, whatever fails. Each test counts, and each tool counts as one. The last line is
`N passed, N failed, N skipped`; the exit status says whether anything failed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

TOOLS = (("ruff", "format", "--check"), ("ruff", "check"), ("mypy",))


class Counts(NamedTuple):
    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def main(pytest_arguments: Sequence[str]) -> int:
    """Run all and say the sum."""
    counts = [*map(check, TOOLS), run_tests(pytest_arguments)]
    total = Counts(*(sum(column) for column in zip(*counts, strict=True)))
    print(total, flush=True)
    return int(total.failed > 0)


def check(tool: Sequence[str]) -> Counts:
    passed = succeeds(*tool)
    return Counts(int(passed), int(not passed), 0)


def run_tests(arguments: Sequence[str]) -> Counts:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        passed = succeeds("pytest", f"--junitxml={report}", *arguments)
        counts = read_report(report)
    return counts if passed or counts.failed else counts._replace(failed=1)


def succeeds(*command: str) -> bool:
    print(f"\n$ {' '.join(command)}", flush=True)
    return subprocess.run([sys.executable, "-m", *command], check=False).returncode == 0


def read_report(path: Path) -> Counts:
    """Sum up a JUnit report; there is none when the tests could not even begin."""
    if not path.exists():
        return Counts(0, 0, 0)
    suites = [suite.attrib for suite in ElementTree.parse(path).iter("testsuite")]
    tests, failures, errors, skipped = (
        sum(int(suite[name]) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    )
    return Counts(tests - failures - errors - skipped, failures + errors, skipped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
