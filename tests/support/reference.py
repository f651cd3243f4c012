"""The reference client, `resync` 2.0.1, in an environment of its own."""

import os
import subprocess
import sys
import tempfile
import venv
from fcntl import LOCK_EX, flock
from pathlib import Path
from zlib import crc32

from tests.support.shell import environment

REQUIREMENTS = ("resync==2.0.1", "setuptools==80.9.0")  # it imports distutils
INSTALL_SECONDS = 180


def installed() -> Path:
    """The client's command; its environment is made once for each Python of the machine."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    version += f"-{crc32(sys.base_prefix.encode()):x}"  # one that is removed leaves its own behind
    home = Path(tempfile.gettempdir(), f"rsnotify-tests-{os.getuid()}-resync-2.0.1-{version}")
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        flock(lock, LOCK_EX)  # several processes test at once
        if not (home / "complete").exists():
            venv.create(home, clear=True)
            pip = [sys.executable, "-m", "pip", "--python", home / "bin/python"]
            install = [*pip, "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS]
            subprocess.run(install, check=True, timeout=INSTALL_SECONDS, env=environment())
            (home / "complete").touch()
    return home / "bin/resync-sync"
