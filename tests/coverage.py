"""Which lines and branches the tests run, hubs in processes of their own too: `make coverage`.

It fails where less than `fail_under` of pyproject.toml is run, or where a line is left out of what
decides without waiting: a wrong decision there would be made again and again.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
WHOLE = ("rsnotify/resourcesync/", "rsnotify/core/")


def main(arguments: Sequence[str]) -> int:
    """Run the tests, then say what they left out; killed processes write down nothing."""
    measure("erase")
    passed = measure("run", "-m", "pytest", *arguments)
    measure("combine", "--quiet")
    is_enough = measure("report", "--skip-covered", "--show-missing")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        measure("json", "--quiet", "--fail-under=0", "-o", str(report))
        left = left_out(json.loads(report.read_text())["files"])
    for name, lines in left.items():
        print(f"no test runs {name}, line {', '.join(map(str, lines))}")
    return int(not (passed and is_enough) or bool(left))


def left_out(files: dict[str, dict[str, list[int]]]) -> dict[str, list[int]]:
    """The lines that must be run and are not, by file.

    >>> left_out({name: {"missing_lines": [3]} for name in ("rsnotify/core/a.py", "rsnotify/b.py")})
    {'rsnotify/core/a.py': [3]}
    """
    return {
        name: found["missing_lines"]
        for name, found in files.items()
        if name.startswith(WHOLE) and found["missing_lines"]
    }


def measure(*words: str) -> bool:
    command = [sys.executable, "-m", "coverage", *words]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
