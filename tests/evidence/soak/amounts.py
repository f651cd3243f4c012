"""The tests that try less in `make test` than they can, with all of it."""

import os
import re
import subprocess
import sys

from tests.support.amount import AS_EVIDENCE
from tests.tools.evidence import ROOT, test_files

TRY_LESS = re.compile(r"\bamount\(|\bmark\.evidence\b|\benough\(")


def main() -> None:
    files = [str(path) for path in test_files() if TRY_LESS.search(path.read_text())]
    words = [sys.executable, "-m", "pytest", "-n", "2", *files]
    subprocess.run(words, check=True, cwd=ROOT, env=os.environ | {AS_EVIDENCE: "1"})
