"""`rsnotify check`: settings are checked, nothing is started or written."""

import os
from collections.abc import Mapping

import typer

from rsnotify.cli.serve import DataDirectory, Host, Port, PublicUrl, Redis, Workers
from rsnotify.errors import InvalidSettings
from rsnotify.process.admin_token import check_token_file, checked_token
from rsnotify.process.hub_process import redis_url_of
from rsnotify.process.settings import Settings

commands = typer.Typer()


@commands.command()
def check(
    host: Host = None,
    port: Port = None,
    data: DataDirectory = None,
    redis: Redis = None,
    public_url: PublicUrl = None,
    workers: Workers = None,
) -> None:
    """Check the settings without starting anything; the options are those of `serve`.

    What is wrong is listed, and the exit status is 2.
    """
    chosen = {"host": host, "port": port, "data": data, "redis_url": redis}
    chosen |= {"public_url": public_url, "workers": workers}
    check_settings(os.environ, **chosen)
    typer.echo("the settings are good")


def check_settings(environ: Mapping[str, str], **chosen: object) -> None:
    """Everything that can be known before a start; `InvalidSettings` has all that is wrong."""
    settings, problems = Settings.judged(environ, **chosen)
    problems += [*_of_token(settings), *_of_redis(settings), *_of_data(settings)]
    if problems:
        raise InvalidSettings(problems)


def _of_token(settings: Settings) -> list[str]:
    try:
        if settings.admin_token:
            checked_token(settings.admin_token, "RSNOTIFY_ADMIN_TOKEN")
        else:
            check_token_file(settings.data)
    except InvalidSettings as error:
        return list(error.problems)
    return []


def _of_redis(settings: Settings) -> list[str]:
    try:
        redis_url_of(settings)
    except InvalidSettings as error:
        return list(error.problems)
    return []


def _of_data(settings: Settings) -> list[str]:
    """The first folder that is there must be one that can be written to."""
    there = settings.data.absolute()
    while not there.exists():
        there = there.parent
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return []
    return [f"--data {settings.data}: {there} is no directory that can be written to"]
