"""What is evidence rather than a test of each change, run and counted; this is `make evidence`.

The tests that are marked so (planted faults, storms, exhaustive models, fixed histories), then new
histories of the simulation, what a fuzzer makes of the corpus, and proofs that take seconds. With
`--full` also all that takes minutes to hours: each amount at its largest, every soak, long
histories, the versions that are allowed, and the release. `make test` names what it leaves here.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import NamedTuple

from tests.support.amount import AS_EVIDENCE
from tests.support.needs import COMPILER, find
from tests.tools.run import Counts, run_tests

ROOT = Path(__file__).parents[2]
MARKED = re.compile(r"\bmark\.evidence\b|\benough\(")
SECONDS = 120.0  # of simulated worlds, and half as many of fuzzing
MINUTES = 50.0  # of simulated worlds, in full
SHORT_SOAKS = ("databases",)


class Part(NamedTuple):
    """A program that proves something, and what it needs that a machine may lack."""

    name: str
    words: Sequence[str]
    needs: Sequence[str] = ()


def test_files() -> list[Path]:
    """The hub's, and those that lie beside the clients."""
    folders = (ROOT / "tests", *ROOT.glob("clients/*/tests"))
    return sorted(path for folder in folders for path in folder.rglob("test_*.py"))


def soaks() -> list[str]:
    programs = (ROOT / "tests/evidence/soak").glob("*.py")
    return sorted(path.stem for path in programs if "\ndef main()" in path.read_text())


def parts(*, full: bool) -> Iterator[Part]:
    """Besides the marked tests: what else is run, in this order."""
    python = (sys.executable, "-m")
    seconds = 60 * MINUTES if full else SECONDS
    simulate = (*python, "tests.evidence.simulation", "--seconds")
    yield Part("new histories", (*simulate, f"{seconds:.0f}"), COMPILER)
    if full:
        yield Part("long histories", (*simulate, f"{seconds / 5:.0f}", "--long"), COMPILER)
    fuzz = seconds / 2 if full else SECONDS / 20
    yield Part("fuzzing", (*python, "tests.evidence.fuzz", "--seconds", f"{fuzz:.0f}"))
    for name in soaks() if full else SHORT_SOAKS:
        yield Part(f"soak {name}", (*python, "tests.evidence.soak", name))
    if full:
        yield Part("release", (*python, "tests.tools.release", "--fresh", "dist"))
        yield Part("versions", (*python, "tests.tools.versions"))


def named() -> str:
    """What `make test` does not run, for its last lines."""
    files = sorted(
        str(path.relative_to(ROOT)) for path in test_files() if MARKED.search(path.read_text())
    )
    others = [part.name for part in parts(full=True)]
    return (
        "Not run here, but by `make evidence`: the tests marked `evidence` in "
        f"{', '.join(files)}; {', '.join(others[:3])}. "
        f"Only by `make evidence FULL=yes`: {', '.join(others[3:])}."
    )


def run(part: Part) -> Counts:
    print(f"\n$ {' '.join(part.words[1:])}", flush=True)
    if part.needs and find(*part.needs) is None:
        return Counts(0, 0, 1, (f"no {part.needs[0]} ({part.name})",))
    began = time.monotonic()
    with subprocess.Popen(part.words, cwd=ROOT, stdout=PIPE, stderr=STDOUT, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    failed = int(process.returncode != 0)
    outcome = "failed" if failed else "proven"
    print(f"{part.name}: {outcome} in {time.monotonic() - began:.0f} s", flush=True)
    return Counts(1 - failed, failed, 0, names=(f"{part.name}: {last}",) if failed else ())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also what takes minutes to hours")
    full = parser.parse_args(arguments).full
    os.environ[AS_EVIDENCE] = "1"
    total = run_tests(["-m", "evidence"])
    del os.environ[AS_EVIDENCE]
    rows = [(part.name, run(part)) for part in parts(full=full)]
    for name, counts in rows:
        print(f"{name}: {counts}")
        total += counts
    print(f"\n{total}", flush=True)
    return int(total.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
