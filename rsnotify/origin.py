"""The address that a request reached the hub by: the base of every link in what it is answered.

Rules that hold here: the public address that the operator chose wins; forwarded headers count only
from proxies that the operator trusts; what a stranger may put into `Host` is capped and checked.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from starlette.requests import HTTPConnection

from rsnotify.errors import Rejected

Network = IPv4Network | IPv6Network

_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?").fullmatch


class Origin:
    """Finds the base of the links, such as `https://hub.example.org`."""

    def __init__(self, public_url: str | None, trusted: Sequence[Network] = ()) -> None:
        self._public_url = public_url
        self._trusted = trusted

    def base(self, request: HTTPConnection) -> str:
        if self._public_url is not None:
            return self._public_url
        host, scheme = request.headers.get("host", ""), request.url.scheme
        if self._is_trusted(request):
            host = _nearest(request, "x-forwarded-host") or host
            scheme = _nearest(request, "x-forwarded-proto") or scheme
        if _HOST(host) is None or scheme not in ("http", "https"):
            raise Rejected("the request names no usable Host")
        return f"{scheme}://{host}"

    def _is_trusted(self, request: HTTPConnection) -> bool:
        if not self._trusted or request.client is None:
            return False
        address = ip_address(request.client.host)
        return any(address in network for network in self._trusted)


def _nearest(request: HTTPConnection, name: str) -> str:
    """What the nearest proxy says; what stands before that, anybody may have written."""
    return request.headers.get(name, "").rpartition(",")[2].strip()
