"""`rsnotify health`. It is called often, so little is imported."""

from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Annotated
from urllib.parse import urlsplit

import typer
from typer import Option

from rsnotify.cli.options import Commands, Json
from rsnotify.cli.output import print_json
from rsnotify.cli.target import HERE, Url
from rsnotify.cli.terminal import echo
from rsnotify.errors import PROBLEM

commands = Commands()


@commands.command()
def health(
    quiet: Annotated[bool, Option("--quiet", help="Print nothing if the hub is ready.")] = False,
    json: Json = False,
    url: Url = HERE.url,
) -> None:
    """Exit with 0 if the hub can be sent requests, else with 1 and the reason.

    For the health check of a container.
    """
    reason = why_not_ready(url)
    if json:
        print_json({"ready": reason is None, "reason": reason})
        raise typer.Exit(int(reason is not None))
    if reason is not None:
        echo(reason, err=True)
        raise typer.Exit(1)
    if not quiet:
        echo("ready")


HEALTH_SECONDS = 5.0


def why_not_ready(url: str) -> str | None:
    """None if the hub can be sent requests, else why not."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=HEALTH_SECONDS)
    with closing(connection):
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}/health/ready")
            answer = connection.getresponse()
            body = answer.read(4096)
        except (OSError, HTTPException) as error:
            from rsnotify_client.answer import HubUnreachable, cause_of

            return HubUnreachable(url, cause_of(error)).detail
    if answer.status == 200:
        return None
    is_hubs = answer.headers.get_content_type() == PROBLEM
    from rsnotify_client.answer import problem_in

    problem = problem_in(body) if is_hubs else None
    return problem.detail if problem else f"{url} answers {answer.status}, and is no hub"
