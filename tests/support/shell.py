"""Where the tests run: in an empty directory, with an empty home, without the shell's settings.

A command under test would read them: `data/admin-token` of a `make run` in this clone,
`RSNOTIFY_URL`, a `.netrc`, a proxy. What a test installs is installed with `environment()`: pip and
npm may have their settings there.

Compiled modules are kept, even if the shell forbids it: else every worker compiles every module of
the tests, and each Python that a test starts those of the hub.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT = "TESTS_LEFT_OF_THE_SHELL"  # an environment variable, for those who inherit ours
PROXIES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
COMPILES_ALWAYS = "PYTHONDONTWRITEBYTECODE"


def leave() -> Path:
    """Leave the shell; the empty directory, in which this process is from now on."""
    folder = Path(tempfile.mkdtemp(prefix="rsnotify-tests-")).resolve()
    read = {name for name in os.environ if name.startswith("RSNOTIFY_") or name.upper() in PROXIES}
    read |= os.environ.keys() & {COMPILES_ALWAYS}
    left = {name: os.environ.pop(name) for name in read} | {"HOME": os.environ.get("HOME", "")}
    os.environ.setdefault(LEFT, json.dumps(left))
    os.environ["HOME"] = str(folder)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(ROOT / ".hypothesis")
    os.environ["PYTHONPATH"] = str(ROOT)  # processes of tests import from here
    sys.dont_write_bytecode = False
    os.chdir(folder)
    return folder


def come_back(folder: Path) -> None:
    os.chdir(ROOT)
    shutil.rmtree(folder, ignore_errors=True)


def environment() -> dict[str, str]:
    """As it was in the shell."""
    return os.environ | json.loads(os.environ.get(LEFT, "{}"))
