"""`rsnotify` itself: its groups of commands, and what an error becomes."""

import logging
import os
import sys
from typing import Annotated

import typer

from rsnotify import __version__
from rsnotify.cli import (
    administration,
    backup,
    publishing,
    reading,
    resources,
    serve,
    sets,
    watching,
)
from rsnotify.errors import InvalidSettings, Rejected, TryAgain

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # the markup would take 0.4 s of every `--help`
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="A push-notification hub for ResourceSync (ANSI/NISO Z39.99).",
)
for group in (serve, watching, publishing, resources, reading, sets, administration, backup):
    app.add_typer(group.commands)


def main() -> None:
    """Run the command line; every error on purpose becomes one message and an exit status.

    A reader of stdout that has gone away is no error to speak of: Typer ends quietly by itself.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        app()
    except (Rejected, TryAgain) as error:
        _complain(error.detail, *(fault["message"] for fault in getattr(error, "faults", ())[1:]))
        sys.exit(1)
    except InvalidSettings as error:
        _complain(*error.problems)
        sys.exit(error.exit_status)
    except UnicodeEncodeError as error:
        _complain(f"{str(error.object)[:200]!r} is not UTF-8: write it so")
        sys.exit(2)
    except OSError as error:  # of this machine: a full disk, no more files
        _forget_output()
        _complain(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _forget_output() -> None:
    """What could not be written is not tried again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _complain(*problems: str) -> None:
    for problem in problems:
        typer.echo(typer.style("error:", fg="red", bold=True) + f" {problem}", err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rsnotify {__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
]


@app.callback()
def _root(version: Version = False) -> None:
    pass
