"""Run every test of a change and count them; this is `make test`.

All of them run, whatever fails. Each test counts, and each tool counts as one. The last lines are
`N passed, N failed, N skipped`, what this machine lacks for those that were skipped, and what has
failed; the exit status says so, too. What is evidence rather than a test of each change is named,
and not counted: `make evidence` runs it.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

TOOLS = (("ruff", "format", "--check"), ("ruff", "check"), ("mypy",))
SLOWEST = 10
NAMED = 20  # of what failed: a log may be cut in the middle, so they stand at its end
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Where this is set, as in many containers, each worker would compile what pytest itself loads."""
INSTALL = "; `make test-packages` installs what is missing"


class Counts(NamedTuple):
    passed: int
    failed: int
    skipped: int
    reasons: tuple[str, ...] = ()  # why each one was skipped
    names: tuple[str, ...] = ()  # of what failed

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __str__(self) -> str:
        counted = Counter(self.reasons).most_common()
        reasons = ", ".join(f"{reason} ({count})" for reason, count in counted)
        install = INSTALL if any(reason.startswith("no ") for reason in self.reasons) else ""
        counts = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        failed = "".join(f"\nfailed: {name}" for name in self.names[:NAMED])
        more = f"\n…and {len(self.names) - NAMED} more" if len(self.names) > NAMED else ""
        return f"{counts}{': ' if reasons else ''}{reasons}{install}{failed}{more}"


def main(pytest_arguments: Sequence[str]) -> int:
    """Run all and say the sum; the tools run beside the tests."""
    with ExitStack() as stack:
        tools = [stack.enter_context(Tool(words)) for words in TOOLS]
        tests = run_tests(pytest_arguments)
        total = sum((tool.counts() for tool in tools), tests)
    from tests.tools.evidence import named

    print(f"\n{named()}\n\n{total}", flush=True)
    return int(total.failed > 0)


def workers() -> int:
    """How many run tests at once: most of these wait for processes of their own."""
    return min((os.cpu_count() or 1) + 6, 32)


def parallel(arguments: Sequence[str]) -> Sequence[str]:
    """What makes pytest share the tests among workers, unless the arguments say how.

    Forks need less; on macOS, what Apple's libraries have begun does not outlive a fork.
    """
    if any(each.startswith(("-n", "--numprocesses")) for each in arguments):
        return ("--dist", "worksteal")
    if sys.platform == "darwin":
        return ("-n", str(workers()), "--dist", "worksteal")
    return ("-p", "tests.tools.workers", "--forks", str(workers()))


class Tool:
    """A tool that runs beside the tests, and says what it says after them."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end

    def __enter__(self) -> "Tool":
        command = [sys.executable, "-m", *self._words]
        self._process = subprocess.Popen(command, stdout=self._said, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._said.close()

    def counts(self) -> Counts:
        passed = self._process.wait() == 0
        self._said.seek(0)
        print(f"\n$ {' '.join(self._words)}\n{self._said.read()}", end="", flush=True)
        return Counts(int(passed), int(not passed), 0, names=() if passed else self._words[:1])


def run_tests(arguments: Sequence[str]) -> Counts:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        options = (f"--junitxml={report}", f"--durations={SLOWEST}")
        command = ["pytest", *options, *parallel(arguments), *arguments]
        print(f"$ {' '.join(command)}", flush=True)
        environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
        done = subprocess.run([sys.executable, "-m", *command], env=environment, check=False)
        counts = read_report(report)
    if done.returncode == 0 or counts.failed:
        return counts
    return counts._replace(failed=1, names=(f"pytest (exit status {done.returncode})",))


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
    reasons = tuple(each.get("message", "") for each in report.iter("skipped"))
    names = tuple(
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in report.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    )
    passed = tests - failures - errors - skipped
    return Counts(passed, failures + errors, skipped, reasons, names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
