"""Commands that look at a hub: `status`, `health`, `check`."""

import os
from typing import Annotated
from urllib.parse import urlencode

import typer

from rsnotify.cli.options import Data, Json, Url
from rsnotify.cli.requests import ask
from rsnotify.cli.serve import DataDirectory, Host, Port, PublicUrl, Redis, Workers
from rsnotify.commands.target import DATA, HERE

commands = typer.Typer()

Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing if the hub is ready.")]

Search = Annotated[
    str, typer.Option("--search", metavar="TEXT", help="Only sets that have this in their names.")
]


@commands.command()
def status(search: Search = "", json: Json = False, url: Url = HERE, data: Data = DATA) -> None:
    """Show the hub at a glance: its sets and readers, its Redis, and, to the admin, WebSub."""
    from rsnotify.commands import status as shown

    wanted = urlencode({"search": search})
    shown.print_status(ask(url, data, "GET", f"/api/status?{wanted}"), json=json)


@commands.command()
def health(quiet: Quiet = False, url: Url = HERE) -> None:
    """Exit with 0 if the hub can be sent requests, else with 1 and the reason.

    For the health check of a container.
    """
    from rsnotify.commands.health import why_not_ready

    reason = why_not_ready(url)
    if reason is not None:
        typer.echo(reason, err=True)
        raise typer.Exit(1)
    if not quiet:
        typer.echo("ready")


@commands.command()
def check(
    host: Host = None,
    port: Port = None,
    data: DataDirectory = None,
    redis: Redis = None,
    public_url: PublicUrl = None,
    workers: Workers = None,
) -> None:
    """Judge the settings without starting anything; the options are those of `serve`.

    What is wrong is listed, and the exit status is 2.
    """
    from rsnotify.commands.check import check_settings

    chosen = {"host": host, "port": port, "data": data, "redis_url": redis}
    chosen |= {"public_url": public_url, "workers": workers}
    check_settings(os.environ, **chosen)
    typer.echo("the settings are good")
