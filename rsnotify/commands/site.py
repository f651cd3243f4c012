"""`rsnotify validate --site`: a whole Source; its progress, and a table of what was checked."""

import asyncio
from collections.abc import Sequence

import msgspec
import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rsnotify.commands.validate import print_violations
from rsnotify.errors import InvalidSettings, Rejected, TryAgain
from rsnotify_client.inspection.checked import RESOURCE, Bounds, Checked
from rsnotify_client.inspection.inspection import Inspection, inspect


def run_site(url: str, token: str | None, bounds: Bounds, *, json: bool) -> int:
    """Inspect it and print what was found; the exit status."""
    console = Console(stderr=True)
    with console.status(f"looking at {escape(url)}") as status:

        def report(checked: Checked) -> None:
            status.update(f"{escape(checked.kind)} {escape(checked.document)}")

        try:
            found = asyncio.run(inspect(url, token=token, bounds=bounds, report=report))
        except (Rejected, TryAgain) as error:  # the address itself
            raise InvalidSettings([error.detail]) from None
    if json:
        typer.echo(msgspec.json.encode(found))
    else:
        _print(found, console)
    return 1 if found.violations else 0


def _print(found: Inspection, console: Console) -> None:
    for each in found.checked:
        if each.violations:
            typer.echo(f"{each.document}:")
            print_violations(each.violations, indent="  ")
    console.print(_table(found.checked))
    if found.beyond:
        told = f"{found.beyond} documents were not looked at: see --documents"
        typer.echo(told, err=True)
    told = f"{found.violations} violation(s)" if found.violations else "no violation"
    typer.echo(f"{found.site}: {told} in {len(found.checked)} checks", err=True)


def _table(found: Sequence[Checked]) -> Table:
    """A row for each check; resources that are as told have one together."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("what it is", no_wrap=True)
    table.add_column("address", overflow="fold")
    table.add_column("outcome")
    right = [each for each in found if each.kind == RESOURCE and each.outcome == "valid"]
    for each in found:
        if each not in right:
            table.add_row(*map(escape, (each.kind, each.document, each.outcome)))
    if right:
        table.add_row("resources", f"{len(right)} of them", "as their lists tell")
    return table
