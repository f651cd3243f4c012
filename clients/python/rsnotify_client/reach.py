"""Where a Source may send those who read it. Pure: nothing is resolved, nothing connected.

Rules that hold here: what a Source names is asked for only at public addresses, unless the Source
itself is at one that is not public: then at private ones too, and at its own kind. It is judged by
the address that is connected to, not by a name.
"""

from urllib.parse import urlsplit

from rsnotify.resourcesync.addresses import literal_address, refusal


class OutOfReach(OSError):
    """An address that a Source may not send anybody to."""


class Reach:
    """What one Source may name."""

    def __init__(self, url: str, *, same_site: bool = False) -> None:
        self._host = _host_of(url)
        self._same_site = same_site
        self._kind: str | None = None  # of the Source's own address, if that is not public
        if (known := literal_address(self._host)) is not None:
            self._kind = _kind_of(known)

    def leaves_site(self, url: str) -> str | None:
        """Why this address is not asked at all, by `--same-site`.

        >>> Reach("http://a.example/", same_site=True).leaves_site("http://b.a.example/x")
        >>> Reach("http://a.example/", same_site=True).leaves_site("http://aa.example/x")
        'it is not at a.example, and --same-site is given'
        """
        if not self._same_site:
            return None
        host = _host_of(url)
        if host == self._host or host.endswith(f".{self._host}"):
            return None
        return f"it is not at {self._host}, and --same-site is given"

    def refusal(self, name: str, address: str) -> str | None:
        """Why this address may not be connected to, which the name of a host has led to."""
        kind = _kind_of(address)
        if name.rstrip(".").lower() == self._host:
            self._kind = kind
            return None
        is_private = kind is not None and refusal(address, private=True) is None
        if kind is None or kind == self._kind or (is_private and self._kind is not None):
            return None
        return f"{name} is at {address}, which is {kind}, and the Source is not: not asked"


def _host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _kind_of(address: str) -> str | None:
    why = refusal(address)
    return why and why.partition(" is ")[2]
