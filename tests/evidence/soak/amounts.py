"""The tests that try less in `make test` than they can, with all of it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.amount import AS_EVIDENCE

TESTS = Path(__file__).parents[2]
TRY_LESS = re.compile(r"\bamount\(|\bmark\.evidence\b")


def main() -> None:
    files = [path for path in TESTS.rglob("test_*.py") if TRY_LESS.search(path.read_text())]
    words = [sys.executable, "-m", "pytest", "-n", "2", *map(str, sorted(files))]
    subprocess.run(words, check=True, cwd=TESTS.parent, env=os.environ | {AS_EVIDENCE: "1"})
