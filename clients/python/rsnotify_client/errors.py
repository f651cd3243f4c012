"""The errors of a caller's own making, and of its own patience; they are Python's, too.

Every other error on purpose says whose it is in its module. All have the root of `rsnotify.errors`.
"""

from rsnotify.errors import Error, TryAgain


class InvalidArgument(Error, ValueError):
    """What was given cannot be used: an address, a token, a name, a time without its zone."""


class TimedOut(Error, TimeoutError):
    """The time that the caller gave is up."""


class TokenUnavailable(TryAgain):
    """The token function has raised, or does not answer; it will be asked again."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, retry_after_seconds=0)


def checked_url(url: object, what: str = "the url") -> str:
    """Text, as it is none where a variable of the environment is not set."""
    if not isinstance(url, str):
        raise InvalidArgument(f"{what} is {url!r}: give an address such as http://127.0.0.1:8080")
    return url
