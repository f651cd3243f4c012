"""The errors of a caller's own making, and of its own patience; they are Python's, too.

Every other error on purpose says whose it is in its module. All have the root of `rsnotify.errors`.
"""

from rsnotify.errors import Error


class InvalidArgument(Error, ValueError):
    """What was given cannot be used: an address, a token, a name, a time without its zone."""


class TimedOut(Error, TimeoutError):
    """The time that the caller gave is up."""
