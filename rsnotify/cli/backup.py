"""`rsnotify backup` and `restore`, on the machine of a hub that has a Redis of its own."""

from pathlib import Path
from typing import Annotated

import typer

from rsnotify.cli.target import DATA
from rsnotify.errors import InvalidSettings
from rsnotify.process.embedded_redis.backup import back_up
from rsnotify.process.embedded_redis.backup import restore as put_back

commands = typer.Typer()

Data = Annotated[
    Path,
    typer.Option("--data", envvar="RSNOTIFY_DATA", help="The hub's data directory."),
]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="Written whole, or not at all.")]
Source = Annotated[Path, typer.Argument(metavar="FILE", help="What `rsnotify backup` has written.")]


@commands.command()
def backup(file: Target, data: Data = DATA) -> None:
    """Write all journals to a file, while the hub runs.

    It needs the Redis that the hub starts. The admin token is not in the file.
    """
    size = back_up(data, file)
    typer.echo(f"{file}: {size:,} bytes", err=True)


@commands.command()
def restore(file: Source, data: Data = DATA) -> None:
    """Make the data directory of a new hub from such a file.

    The next `rsnotify serve` with this directory goes on from there.
    """
    if not file.is_file():
        raise InvalidSettings([f"no file {file}: name one that `rsnotify backup` has written"])
    if not put_back(file, data):
        typer.echo("not checked for damage: no redis-server or valkey-server is here", err=True)
    typer.echo(f"{data} is restored: start the hub with --data {data}", err=True)
