"""The admin token: given by a setting, else made on the first start and kept in the data directory.

No package of the server is imported here: the commands read the token of a hub on their machine.
"""

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from rsnotify.errors import InvalidSettings
from rsnotify.process.settings import Settings

ADMIN_TOKEN_CHARACTERS = 16


def admin_token(settings: Settings) -> str:
    """The token with all rights: from the settings, else from the data directory."""
    if settings.admin_token:
        return checked_token(settings.admin_token, "RSNOTIFY_ADMIN_TOKEN")
    path = settings.data / "admin-token"
    try:
        settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _write_atomically(path, f"rsn_{secrets.token_urlsafe(32)}\n")
    except (FileExistsError, NotADirectoryError):
        raise InvalidSettings(f"--data {settings.data} is no directory") from None
    except OSError as error:
        problem = f"cannot write the admin token to {path}: {error}; or set RSNOTIFY_ADMIN_TOKEN"
        raise InvalidSettings(problem) from None
    return checked_token(read_admin_token(settings.data), str(path))


def checked_token(token: str, where: str) -> str:
    """The token, if it is long enough and valid in a header."""
    if len(token) < ADMIN_TOKEN_CHARACTERS or not re.fullmatch(r"[!-~][ -~]*[!-~]", token):
        raise InvalidSettings(
            f"the admin token in {where} must have at least {ADMIN_TOKEN_CHARACTERS} characters"
            ", all visible ASCII; `openssl rand -hex 32` makes a good one"
        )
    return token


def _write_atomically(path: Path, text: str) -> None:
    """Write the whole file or nothing, even if killed. Of two at once, the first wins."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(part, path)
    part.unlink()


def read_admin_token(data: Path) -> str:
    path = data / "admin-token"
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"cannot read the admin token in {path}: {error}") from None
    if not token:
        raise InvalidSettings(f"{path} is empty: delete it, and the next start creates a new token")
    return token


def check_token_file(data: Path) -> None:
    """Refuse a token that is there and cannot be used; nothing is written."""
    if (data / "admin-token").exists():
        checked_token(read_admin_token(data), str(data / "admin-token"))
