"""`rsnotify backup` and `restore`, on the machine of a hub that has a Redis of its own."""

from pathlib import Path
from typing import Annotated

import typer

from rsnotify.cli.output import print_done, progress
from rsnotify.cli.target import DATA, Json
from rsnotify.errors import InvalidSettings
from rsnotify.process.embedded_redis.backup import back_up
from rsnotify.process.embedded_redis.backup import restore as put_back

commands = typer.Typer()

Data = Annotated[
    Path, typer.Option("--data", envvar="RSNOTIFY_DATA", help="The hub's data directory.")
]
Target = Annotated[Path, typer.Argument(metavar="FILE", help="Written whole, or not at all.")]
Source = Annotated[Path, typer.Argument(metavar="FILE", help="What `rsnotify backup` has written.")]


@commands.command()
def backup(file: Target, json: Json = False, data: Data = DATA) -> None:
    """Write all journals to a file, while the hub runs.

    It needs the Redis that the hub starts. The admin token is not in the file.
    """
    with progress("Redis writes its data") as say:
        try:
            written = back_up(data, file, say)
        except FileNotFoundError:
            raise InvalidSettings(f"{file.parent} is not there: make it first") from None
    print_done({"file": str(file), "bytes": written}, f"{file}: {written:,} bytes", json=json)


@commands.command()
def restore(file: Source, json: Json = False, data: Data = DATA) -> None:
    """Make the data directory of a new hub from such a file.

    The next `rsnotify serve` with this directory goes on from there.
    """
    if not file.is_file():
        raise InvalidSettings(f"no file {file}: name one that `rsnotify backup` has written")
    with progress(f"checking {file}") as say:
        is_checked = put_back(file, data, say)
    if not is_checked and not json:
        typer.echo("not checked for damage: no redis-server or valkey-server is here", err=True)
    words = f"{data} is restored: start the hub with --data {data}"
    print_done({"restored": str(data), "checked": is_checked}, words, json=json)
