"""`rsnotify serve`."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rsnotify.process.settings import Settings

commands = typer.Typer()

Host = Annotated[str | None, typer.Option(help="Address to listen on. [127.0.0.1]")]
Port = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Port; 0 takes a free one. [8080]")
]
DataDirectory = Annotated[
    Path | None, typer.Option(help="Directory of the embedded Redis and the admin token. [data]")
]
Redis = Annotated[
    str | None,
    typer.Option(help="A Redis of your own, such as redis://localhost:6379/0. [embedded]"),
]
PublicUrl = Annotated[str | None, typer.Option(help="The address others reach the hub by.")]
ServedSets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME", help="A set to serve; made if new. Repeatable."),
]
Workers = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Hub processes sharing the port. [1]")
]
InheritedSocket = Annotated[int | None, typer.Option(hidden=True)]  # how workers are started


@commands.command()
def serve(
    host: Host = None,
    port: Port = None,
    data: DataDirectory = None,
    redis: Redis = None,
    public_url: PublicUrl = None,
    sets: ServedSets = None,
    workers: Workers = None,
    inherited_socket: InheritedSocket = None,
) -> None:
    """Run the hub until SIGTERM or Ctrl-C.

    Without `--redis` the hub starts a Redis of its own, in the data directory, that keeps every
    acknowledged change on disk. Every other setting is an environment variable `RSNOTIFY_…`; an
    option given here wins over its variable. Once the hub answers it prints one line,
    `rsnotify ready ADDRESS`, on stdout.
    """
    from rsnotify.process.settings import Settings

    chosen = {"host": host, "port": port, "data": data, "redis_url": redis}
    chosen |= {"public_url": public_url, "workers": workers}
    settings = Settings.from_env(os.environ, **chosen)
    _log_as(settings)
    _run(settings, sets or [], inherited_socket)


def _log_as(settings: "Settings") -> None:
    """Log to stderr as the operator wants it."""
    from rsnotify.process.log_filter import FloodFilter, RepeatedWarningFilter
    from rsnotify.process.log_format import JsonFormat, TextFormat
    from rsnotify.process.settings import WORKER

    worker = os.environ.get(WORKER, "")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormat(worker) if settings.log == "json" else TextFormat(worker))
    handler.addFilter(RepeatedWarningFilter())
    handler.addFilter(FloodFilter())
    logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)


def _run(settings: "Settings", sets: list[str], inherited_socket: int | None) -> None:
    from rsnotify.process.hub_process import run
    from rsnotify.process.parent import end_with_parent

    is_worker = inherited_socket is not None
    if is_worker:
        end_with_parent()
    on_ready = _announcer(settings, sets, is_worker)
    run(settings, sets, on_ready, inherited_socket=inherited_socket)


def _announcer(settings: "Settings", sets: list[str], is_worker: bool) -> Callable[[str], None]:
    """Called with the hub's address once it answers: what it needs has been loaded by then."""
    from rsnotify.commands.welcome import next_steps

    def ready(address: str) -> None:
        typer.echo(f"rsnotify ready {address}")
        if not is_worker:
            typer.echo(next_steps(address, settings, sets), err=True)

    return ready
