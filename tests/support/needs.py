"""Programs that a test needs and a machine may lack: they are looked for, and missed, in one way.

`make test-packages` installs them all, and `make test` counts what was skipped for want of which.
"""

import os
import shutil
from glob import glob

import pytest

CHROMIUM = (
    "Chromium",
    "chromium-headless-shell",  # the same without windows: a third of the processor time
    "chromium",
    "chromium-browser",
    "google-chrome",
)
COMPILER = ("C compiler", "cc", "gcc", "clang")
SYSTEM = (  # what is there, and not on everybody's PATH
    "/usr/sbin",  # Debian's proxies
    *sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True),
    "/Applications/Firefox.app/Contents/MacOS",
    "/opt/homebrew/opt/postgresql/bin",
    "/usr/local/opt/postgresql/bin",
)


def find(*names: str) -> str | None:
    """The path of the first of these programs that there is."""
    path = os.environ.get("PATH", os.defpath)
    if "/usr/bin" in path.split(os.pathsep):
        path = os.pathsep.join((path, *SYSTEM))
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def need(what: str, *names: str) -> str:
    """The path of what goes by one of these names, or by its own; else the test is skipped."""
    found = find(*(names or (what,)))
    if found is None:
        pytest.skip(f"no {what}")
    return found


def chromium() -> str:
    return os.environ.get("CHROMIUM") or need(*CHROMIUM)


def firefox() -> str:
    return os.environ.get("FIREFOX") or need("Firefox", "firefox-esr", "firefox")
