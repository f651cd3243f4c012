"""Run every check of the project and count them; this is `make test`.

All of them run, whatever fails. Each test counts, and each tool counts as one. The last line is
`N passed, N failed, N skipped`, and what this machine lacks for those that were skipped; the exit
status says whether anything failed.
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
    reasons: frozenset[str] = frozenset()  # why something was skipped

    def __add__(self, other: "Counts") -> "Counts":  # type: ignore[override]
        sums = (mine + theirs for mine, theirs in zip(self[:3], other[:3], strict=True))
        return Counts(*sums, self.reasons | other.reasons)

    def __str__(self) -> str:
        reasons = "".join(f"; {reason}" for reason in sorted(self.reasons))
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped{reasons}"


def main(pytest_arguments: Sequence[str]) -> int:
    """Run all and say the sum."""
    total = sum(map(check, TOOLS), Counts(0, 0, 0)) + run_tests(pytest_arguments)
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
    report = ElementTree.parse(path)
    suites = [suite.attrib for suite in report.iter("testsuite")]
    tests, failures, errors, skipped = (
        sum(int(suite[name]) for suite in suites)
        for name in ("tests", "failures", "errors", "skipped")
    )
    reasons = frozenset(each.get("message", "") for each in report.iter("skipped"))
    return Counts(tests - failures - errors - skipped, failures + errors, skipped, reasons)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
