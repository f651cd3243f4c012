"""Run histories: `python -m tests.simulation --help` names what can be chosen."""

import asyncio
import ctypes
import os
import sys

NO_RANDOM_ADDRESSES = 0x0040000


def begin_again() -> None:
    """…without random addresses and hashes: the order of sets depends on them."""
    words = sys.argv[1:]
    if "--redis" not in words:
        from rsnotify.process.embedded_redis.binaries import installed_binaries

        words = ["--redis", asyncio.run(installed_binaries())[0].path, *words]
    ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)
    known = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    command = [sys.executable, "-m", "tests.simulation", *words]
    os.execve(sys.executable, command, known | {"PYTHONHASHSEED": "0", "TZ": "UTC"})


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        begin_again()
    from tests.simulation import known, virtual  # noqa: F401  before anything of the hub

    if "--fault" in sys.argv:
        known.plant(sys.argv[sys.argv.index("--fault") + 1])
    from tests.simulation.run import main

    sys.exit(main(sys.argv[1:]))
