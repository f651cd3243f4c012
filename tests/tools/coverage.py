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

from tests.tools.run import parallel

ROOT = Path(__file__).parents[2]
PURE = (
    "clients/python/rsnotify_bridge/rules.py",
    "clients/python/rsnotify_client/moments.py",
    "clients/python/rsnotify_client/provenance.py",
    "clients/python/rsnotify_bridge/feeds.py",
    "clients/python/rsnotify_bridge/markup.py",
    "rsnotify/gunzip.py",
    "rsnotify/recent.py",
    "rsnotify/resourcesync/",
    "rsnotify/documents/documents.py",
    "rsnotify/documents/dcat.py",
    "rsnotify/resourcesync/forms.py",
    "rsnotify/live/cache.py",
    "rsnotify/journal/gzip_parts.py",
    "rsnotify/sets/options.py",
    "rsnotify/journal/submission.py",
    "rsnotify/journal/window.py",
    "rsnotify/journal/witness.py",
    "rsnotify/access/base_url.py",
    "rsnotify/access/jwt_rules.py",
    "rsnotify/access/caching.py",
    "rsnotify/access/query.py",
    "rsnotify/access/sent_token.py",
    "rsnotify/outbound/answer.py",
    "rsnotify/publishing/bodies.py",
    "rsnotify/publishing/loads/load.py",
    "rsnotify/publishing/loads/load_formats.py",
    "rsnotify/streams/cursors.py",
    "rsnotify/streams/stream_headers.py",
    "rsnotify/streams/stream_query.py",
    "rsnotify/views/activities.py",
    "rsnotify/views/atom.py",
    "rsnotify/views/dublin_core.py",
    "rsnotify/views/listing.py",
    "rsnotify/views/oai_answers.py",
    "rsnotify/views/oai_question.py",
    "rsnotify/views/oai_token.py",
    "rsnotify/websub/call_slots.py",
    "rsnotify/websub/rules.py",
    "rsnotify/websub/subscription.py",
)
"""What decides without waiting: no socket, clock, chance or Redis. Every line of it is tested."""

WHOLE = ("-m", "evidence or not evidence")
RUN_BY = (
    "tests/unit",
    "clients/python/tests/unit",
    *(
        f"tests/integration/test_{name}.py"
        for name in ("loads", "pull", "pull_json", "resource_list_archive", "websub_process")
    ),
)
"""The tests that run every line of it: `make coverage PYTEST_ARGS=--pure`."""


def main(arguments: Sequence[str]) -> int:
    """Run the tests, then say what they left out; killed processes write down nothing."""
    is_of_pure = [*arguments] == ["--pure"]
    chosen = RUN_BY if is_of_pure else arguments
    measure("erase")
    passed = measure("run", "-m", "pytest", *WHOLE, *parallel(chosen), *chosen)
    measure("combine", "--quiet")
    is_enough = is_of_pure or measure("report", "--skip-covered", "--show-missing")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        measure("json", "--quiet", "--fail-under=0", "-o", str(report))
        left = left_out(json.loads(report.read_text())["files"])
    for name, lines in left.items():
        print(f"no test runs {name}, line {', '.join(map(str, lines))}")
    return int(not (passed and is_enough) or bool(left))


def left_out(files: dict[str, dict[str, list[int]]]) -> dict[str, list[int]]:
    """The lines that must be run and are not, by file.

    >>> left_out({name: {"missing_lines": [3]} for name in (PURE[1], "rsnotify/loops.py")})
    {'clients/python/rsnotify_bridge/rules.py': [3]}
    """
    return {
        name: found["missing_lines"]
        for name, found in files.items()
        if name.startswith(PURE) and found["missing_lines"]
    }


def measure(*words: str) -> bool:
    command = [sys.executable, "-m", "coverage", *words]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
