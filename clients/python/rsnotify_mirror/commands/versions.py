"""`rsnotify versions`: what a mirror has kept of a resource; the copy as it was."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rsnotify.cli.options import Commands, Json
from rsnotify.cli.output import counted, print_found
from rsnotify.cli.root import wrong_use
from rsnotify.cli.terminal import echo
from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.change import Position
from rsnotify_mirror.disk import Disk
from rsnotify_mirror.versions import KeptVersion, Versions

commands = Commands()

UNKNOWN, PRESENT = "unknown", "now"


@commands.command()
def versions(
    directory: Annotated[
        Path,
        Argument(metavar="DIR", help="Where `rsnotify mirror --keep-versions` keeps them."),
    ],
    loc: Annotated[
        str | None, Argument(metavar="LOC", help="A resource's address.", show_default=False)
    ] = None,
    at: Annotated[
        str | None, Option("--at", metavar="TIME", help="The copy as it was then; with --out.")
    ] = None,
    out: Annotated[
        Path | None, Option("--out", metavar="OUT", help="An empty directory to write it to.")
    ] = None,
    json: Json = False,
) -> None:
    """List the versions of a resource, or write the copy as it was.

    `rsnotify versions versions http://example.com/res1`

    The times are those at which the Source has changed it. Exit status: 0 done, 1 no version is
    known, or a file of one has gone; 2 wrong use.
    """
    if (at is None) != (out is None) or (at is None) == (loc is None):
        raise typer.BadParameter("give a LOC, or --at TIME and --out OUT")
    with Versions(directory) as kept:
        if loc is not None:
            found = kept.of(loc)
            print_found([shown(each) for each in found], lines_of(found), json=json)
            raise typer.Exit(0 if found else 1)
        assert at is not None  # noqa: S101 - checked above
        assert out is not None  # noqa: S101
        with wrong_use(ValueError, OverflowError, at="--at"):
            moment = Position.parse_moment(at)
        raise typer.Exit(_write(kept, moment, out))


def shown(version: KeptVersion) -> dict[str, str | int | None]:
    return {
        "loc": version.loc,
        "from": str(Position(version.begins)) if version.begins else None,
        "until": None if version.ended is None else str(Position(version.ended)),
        "hash": version.hash,
        "length": version.length,
    }


def lines_of(found: list[KeptVersion]) -> Iterator[str]:
    for each in found:
        begins = Position(each.begins) if each.begins else UNKNOWN
        ended = PRESENT if each.ended is None else Position(each.ended)
        yield f"{begins}  {ended}  {each.length}  {each.hash}"


def _write(kept: Versions, moment: Position, out: Path) -> int:
    """Write all resources of the moment; the exit status."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise InvalidSettings(f"--out {out}: it holds files: give an empty directory or a new one")
    written, missing = 0, list[str]()
    with closing(Disk(out)) as disk:
        for each in kept.at(moment):
            if kept.write(each, disk):
                written += 1
            else:
                missing.append(each.loc)
        disk.sweep(list)
    for loc in missing:
        echo(f"left out: {loc}: its file is not there, or another has its place", err=True)
    echo(f"{out}: {counted(written, 'resource')} of {moment}", err=True)
    return 1 if missing else 0
