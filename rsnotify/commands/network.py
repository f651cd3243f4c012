"""How a command uses the network, and what it logs of that."""

import logging
import os
from pathlib import Path

from msgspec.structs import replace

from rsnotify.errors import InvalidSettings
from rsnotify_client.network import Network, parse_header


def network_of(
    headers: list[str], cookies: Path | None, rate: float | None, timeout: float | None
) -> Network:
    """What the options say, and what the environment says besides."""
    return replace(
        Network.of(os.environ),
        headers=tuple(map(parse_header, headers)),
        cookies=None if cookies is None else str(cookies),
        rate=rate,
        timeout_seconds=timeout,
    )


def log_more(*, verbose: bool, file: Path | None) -> None:
    """Each request, on stderr or in a file."""
    if verbose or file is not None:
        for package in ("rsnotify_client", "rsnotify_mirror"):
            logging.getLogger(package).setLevel(logging.DEBUG)
    if file is None:
        return
    if not verbose:  # what stood on stderr before stands there still
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.INFO)
    try:
        handler = logging.FileHandler(file)
    except OSError as error:
        raise InvalidSettings([f"--log-file {file}: {error.strerror}"]) from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)
