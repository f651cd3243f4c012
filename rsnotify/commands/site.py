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
from rsnotify_mirror.inspection.checked import Bounds, Checked, counted
from rsnotify_mirror.inspection.inspection import Inspection, inspect


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
    return 0 if found.is_right else 1


def _print(found: Inspection, console: Console) -> None:
    for each in found.checked:
        if each.violations:
            typer.echo(f"{each.document}:")
            print_violations(each.violations, indent="  ")
    console.print(_table(found.checked))
    for each in found.checked:
        if each.note:
            typer.echo(f"{each.kind} {each.document}: {each.note}", err=True)
    for unchecked in found.unchecked:
        typer.echo(f"not checked: {unchecked}", err=True)
    told = counted(found.violations, "violation") if found.violations else "no violation"
    checks = counted(len(found.checked), "check")
    more = f", {len(found.unchecked)} not complete" if found.unchecked else ""
    typer.echo(f"{found.site}: {told} in {checks}{more}", err=True)


def _table(found: Sequence[Checked]) -> Table:
    """A row for each kind."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("what it is", no_wrap=True)
    for name in ("checked", "wrong", "not checked"):
        table.add_column(name, justify="right")
    for kind in dict.fromkeys(each.kind for each in found):
        those = [each for each in found if each.kind == kind]
        wrong, unchecked = (
            [each for each in those if each.violations],
            [each for each in those if each.error],
        )
        numbers = (len(those), len(wrong), len(unchecked))
        table.add_row(escape(kind), *(str(each or "") for each in numbers))
    return table
