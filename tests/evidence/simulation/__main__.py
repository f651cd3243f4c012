"""Run histories: `python -m tests.evidence.simulation --help` names what can be chosen."""

import asyncio
import ctypes
import os
import sys

NO_RANDOM_ADDRESSES = 0x0040000
BEGUN = "WORLD_HAS_BEGUN"  # an environment variable
KEPT = ("PATH", "TMPDIR")


def begin_again() -> None:
    """…without random addresses and hashes: the order of sets depends on them."""
    words = [*sys.argv[1:]]
    if "--redis" not in words:
        words += ["--redis", "installed"]
    place = words.index("--redis") + 1
    if words[place] in ("installed", "packaged"):
        words[place] = server(is_packaged=words[place] == "packaged")
    ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)
    fixed = {BEGUN: "yes", "PYTHONHASHSEED": "0", "TZ": "UTC"}
    known = {name: os.environ[name] for name in KEPT if name in os.environ}
    command = [sys.executable, "-m", "tests.evidence.simulation", *words]
    os.execve(sys.executable, command, known | fixed)


def server(*, is_packaged: bool) -> str:
    """The path of the packaged one; or of the first of this machine, whichever it is."""
    from rsnotify.process.embedded_redis.binaries import installed_binaries

    found = asyncio.run(installed_binaries())
    path = next((each.path for each in found if each.is_packaged or not is_packaged), None)
    return path or sys.exit("The simulation needs a redis-server or valkey-server.")


if __name__ == "__main__":
    if sys.platform != "linux":
        sys.exit("The simulation needs Linux: it hands a server its clocks by LD_PRELOAD.")
    if BEGUN not in os.environ:
        begin_again()
    from tests.evidence.simulation import known, virtual  # noqa: F401  before anything of the hub

    if "--fault" in sys.argv:
        known.plant(sys.argv[sys.argv.index("--fault") + 1])
    from tests.evidence.simulation.run import main

    sys.exit(main(sys.argv[1:]))
