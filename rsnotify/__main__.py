"""The command `rsnotify`, also as `python -m rsnotify`; says which packages are missing, if any.

Nothing that takes time is imported before it is known to be needed.
"""

import os
import sys
from contextlib import suppress

from rsnotify import __version__

_CLI = ("rich", "typer")
_HUB = (
    "aiohttp",
    "hiredis",
    "httptools",
    "isal",
    "jwt",
    "prometheus_client",
    "redis",
    "starlette",
    "uvicorn",
    "uvloop",
    "yarl",
)
EXTRA_OF = dict.fromkeys(_CLI, "cli") | dict.fromkeys(_HUB, "hub")
"""Which extra of the distribution brings each package that a bare installation does not have."""


def main() -> None:
    """Run the command line."""
    _fill_closed_streams()
    if sys.argv[1:] == ["--version"]:
        with suppress(BrokenPipeError):
            os.write(1, f"rsnotify {__version__}\n".encode())  # nothing is left to be flushed
        return
    try:
        from rsnotify.cli import main as run  # noqa: PLC0415

        run()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        sys.stderr.write(f"error: {missing(package)}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def _fill_closed_streams() -> None:
    """Started without stdout or stderr: no socket may get their numbers, for uvloop aborts then."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(opened)
    sys.stdout, sys.stderr = sys.stdout or os.fdopen(1, "w"), sys.stderr or os.fdopen(2, "w")


def missing(package: str) -> str:
    """How to install what this package belongs to."""
    extra = EXTRA_OF[package]
    what = "The command line" if extra == "cli" else "The hub itself"
    how = f"in a clone of rsnotify, pip install '.[{extra}]'"
    return f"{what} is not installed ({package} is missing): {how}"


if __name__ == "__main__":
    main()
