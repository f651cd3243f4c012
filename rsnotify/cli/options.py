"""Arguments and options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from rsnotify.commands.target import checked_address, checked_name

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="RSNOTIFY_URL", help="Where the hub is.", callback=checked_address
    ),
]
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="RSNOTIFY_DATA",
        help="The hub's data directory, for its admin token, on the hub's own machine. "
        "Elsewhere set `RSNOTIFY_TOKEN`.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Metrics = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write numbers for Prometheus' textfile collector there."),
]
SetName = Annotated[
    str,
    typer.Argument(metavar="SET", help="Name of the set of resources.", callback=checked_name),
]
