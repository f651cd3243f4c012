"""The hub that a command speaks to: its address, and the token that goes with it.

Nothing here knows what is asked of the hub.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rsnotify.errors import InvalidSettings, Rejected
from rsnotify.serving.admin_token import read_admin_token

HERE = "http://127.0.0.1:8080"
DATA = Path("data")
VARIABLES = ("RSNOTIFY_TOKEN", "RSNOTIFY_ADMIN_TOKEN")
ADMIN_FILE = "RSNOTIFY_ADMIN_TOKEN_FILE"


class Credential(NamedTuple):
    """A token and where it came from, which whoever must replace it needs to know."""

    token: str | None
    origin: str


NONE = Credential(None, "none was sent: set RSNOTIFY_TOKEN")


def checked_address(url: str) -> str:
    """The hub's address, or what is wrong with it."""
    wrong = _wrong(url)
    if wrong is None:
        return url
    name = "RSNOTIFY_URL=" if os.environ.get("RSNOTIFY_URL") == url else "--url "
    raise InvalidSettings([f"{name}{url}: {wrong}"])


def _wrong(url: str) -> str | None:
    if "://" not in url:
        return f"http:// or https:// is missing: write http://{url}"
    try:
        parts = urlsplit(url)
        _ = parts.port  # it is only read, and refused, when it is asked for
    except ValueError as error:
        return f"{error}; must be an address such as {HERE}"
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return f"must be an address such as {HERE}"
    return None


def credential_for(url: str, data: Path) -> Credential:
    """The token to speak with: ours, the admin's, or that of the hub on this machine.

    The last is not for the hubs of others: unless `--data` says so, it is shown to this machine.
    """
    for name in VARIABLES:
        if chosen := os.environ.get(name):
            return Credential(chosen, f"it is the one in {name}")
    if file := os.environ.get(ADMIN_FILE):
        return Credential(_read_token(Path(file)), f"it is the one in {file}")
    is_ours = data != DATA or urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    if not is_ours or not (data / "admin-token").exists():
        return NONE
    return Credential(read_admin_token(data), f"it is the one in {data / 'admin-token'}")


def _read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise InvalidSettings([f"{ADMIN_FILE}={str(file)!r}: {error.strerror}"]) from None


@contextmanager
def refusals_of(credential: Credential) -> Iterator[None]:
    """Say of a token that is refused where it came from."""
    try:
        yield
    except Rejected as refused:
        if refused.status not in (401, 403):
            raise
        detail = f"{refused.detail} ({credential.origin})"
        raise Rejected(detail, status=refused.status, faults=refused.faults) from None
