"""How the network is used: by which proxies, with whose certificates, as whom, and how far.

Rules that hold here: what is secret goes to the host that it was given for and to no other: a
token or a password to its own origin, a header or a cookie to the host that it names; nothing that
was given for https is said in plain http. A `.netrc` never counts before a token or a password that
was given for this use; elsewhere than at the user's own address it counts by https alone, at the
port that it names, and after no redirect to another origin. A login in an address that a Source
names is never sent.

What a Source names is asked for only at public addresses, unless the Source itself is at one that
is not public: then at private ones too, and at addresses of its own kind. The address that is
connected to counts, not its name. Where the Source itself is, is decided by the first address of
its host that was connected to, as long as the program runs. A link-local address is never asked,
nor a cloud's metadata service.

A proxy in a lower-case variable counts before one in an upper-case one; this machine is never
reached through a proxy, and no error shows a proxy's password.
"""

import logging
import os
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network
from math import inf
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

import msgspec
from msgspec.structs import replace

from rsnotify import __version__
from rsnotify.errors import InvalidSettings
from rsnotify.resourcesync.addresses import (
    behind_nat64,
    literal_address,
    own_link,
    refusal,
)
from rsnotify_client.address import origin, wrong_token
from rsnotify_client.errors import InvalidArgument
from rsnotify_client.token import ANSWER_SECONDS, HeldToken, Token

PORTS = {"http": 80, "https": 443}
SCHEMES = {"http": 80, "https": 443, "socks4": 1080, "socks5": 1080, "socks5h": 1080}
BEARER = "Bearer "
EXAMPLE = "http://user:password@proxy.example.org:3128"


class Proxy(NamedTuple):
    """A proxy, and who may use it."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str = ""

    @property
    def is_socks(self) -> bool:
        return self.scheme.startswith("socks")

    @property
    def login(self) -> str | None:
        """User and password, as a header carries them."""
        if self.user is None:
            return None
        return _basic(self.user, self.password)

    @property
    def url(self) -> str:
        """Its address with the password."""
        if self.user is None:
            return self.name
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return self.name.replace("://", f"://{login}@")

    @property
    def name(self) -> str:
        """Its address without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Proxies(msgspec.Struct, frozen=True):
    """The proxies of an environment."""

    by_scheme: dict[str, Proxy] = {}
    exempt: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """The proxies of these variables; `InvalidSettings` for a value that is no proxy."""
        for_all = _named(environment, "all_proxy")
        found = {
            scheme: proxy
            for scheme in PORTS
            if (proxy := _named(environment, f"{scheme}_proxy") or for_all) is not None
        }
        exempt = _value(environment, "no_proxy")[1].lower().replace(",", " ").split()
        return cls(found, tuple(exempt))

    def lead_to(self, scheme: str, host: str, port: int | None = None) -> Proxy | None:
        """The proxy for an http or https origin; None if it is asked directly."""
        proxy = self.by_scheme.get(scheme)
        if proxy is None or _is_here(host := host.lower().strip("[]").rstrip(".")):
            return None
        port = port or PORTS[scheme]
        if any(_is_exempt(host, port, each) for each in self.exempt):
            return None
        if proxy.is_socks and find_spec("python_socks") is None:
            how = "in a clone of rsnotify, pip install '.[socks]'"
            raise InvalidSettings(f"{proxy.name} speaks SOCKS: {how}")
        return proxy


def parse_proxy(name: str, address: str) -> Proxy:
    """The proxy at an address, which the setting of this name has."""
    full = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(full)
        host, port, scheme = parts.hostname, parts.port, parts.scheme
        user = None if parts.username is None else unquote(parts.username)
        password = unquote(parts.password or "")
    except ValueError:
        host, scheme = None, ""
    if not host or scheme not in SCHEMES or parts.path not in ("", "/"):
        raise InvalidSettings(f"{name} is no address of a proxy: write {EXAMPLE}")
    return Proxy(scheme, host, port or SCHEMES[scheme], user, password)


def connected_by(proxy: Proxy, host: str, port: int, seconds: float | None) -> socket.socket:
    """A connection by a SOCKS proxy, which looks up the name, if it can (SOCKS 4 cannot)."""
    from python_socks import ProxyError, ProxyType  # noqa: PLC0415 - of an extra
    from python_socks.sync import Proxy as Socks  # noqa: PLC0415

    kind = ProxyType.SOCKS4 if proxy.scheme == "socks4" else ProxyType.SOCKS5
    by = Socks(kind, proxy.host, proxy.port, proxy.user, proxy.password)
    try:
        return by.connect(host, port, timeout=seconds)
    except ProxyError as error:
        raise OSError(f"the proxy {proxy.host}:{proxy.port}: {error}") from None


def _named(environment: Mapping[str, str], name: str) -> Proxy | None:
    name, value = _value(environment, name)
    return parse_proxy(name, value) if value else None


def _value(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """The variable that counts, and its value.

    A web server hands a request's `Proxy` header to a CGI program as HTTP_PROXY.
    """
    if name in environment:
        return name, environment[name].strip()
    if name == "http_proxy" and "REQUEST_METHOD" in environment:
        return name, ""
    return name.upper(), environment.get(name.upper(), "").strip()


def _is_exempt(host: str, port: int, entry: str) -> bool:
    """Whether this entry of `NO_PROXY` means it: a host with its subdomains, a network, or `*`."""
    name, _, digits = entry.rpartition(":")
    if _network(entry) is None and name and digits.isascii() and digits.isdecimal():
        if int(digits) != port:
            return False
        entry = name
    if (network := _network(entry.strip("[]"))) is not None:
        found = _network(host)
        return found is not None and found.network_address in network
    name = entry.removeprefix("*.").strip(".")
    return name == "*" or f".{host}".endswith(f".{name}")


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    network = _network(host)
    return network is not None and network.is_loopback


if TYPE_CHECKING:
    from http.cookiejar import MozillaCookieJar

log = logging.getLogger(__name__)

CERTIFICATE = "RSNOTIFY_CLIENT_CERTIFICATE"
KEY = "RSNOTIFY_CLIENT_KEY"
CONTACT = "RSNOTIFY_CONTACT"
BUNDLE = "REQUESTS_CA_BUNDLE"
NO_KEY = f", or its key is in another file: name that in {KEY}"


class GivenHeader(NamedTuple):
    """A header for one host; without one, for the host that was named to begin with."""

    host: str | None
    name: str
    value: str


class Network(msgspec.Struct, frozen=True):
    """The settings of the network, for everything that one client does."""

    proxies: Proxies = Proxies()
    bundle: str | None = None
    certificate: str | None = None
    key: str | None = None
    contact: str | None = None
    netrc: str | None = None
    headers: tuple[GivenHeader, ...] = ()
    cookies: str | None = None
    timeout_seconds: float | None = None
    rate: float | None = None
    source: str | None = None
    """The Source that has named what is asked: what may be reached is decided by where it is."""
    source_kinds: dict[str, str | None] = {}
    """The kind of address that each Source is at, by its host, such as "loopback"; None: public.
    It is that of the first connection, and is shared by all that one program asks."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """The settings in these variables; `InvalidSettings` for what cannot be used."""
        if environment.get(KEY) and not environment.get(CERTIFICATE):
            raise InvalidSettings(f"{KEY} is set without {CERTIFICATE}")
        home = environment.get("HOME")
        return cls(
            proxies=Proxies.of(environment),
            bundle=environment.get(BUNDLE) or None,
            certificate=environment.get(CERTIFICATE) or None,
            key=environment.get(KEY) or None,
            contact=environment.get(CONTACT) or None,
            netrc=environment.get("NETRC") or (home and str(Path(home, ".netrc"))),
        )

    @property
    def agent(self) -> str:
        """The `User-Agent`."""
        return f"rsnotify/{__version__}" + (f" ({self.contact})" if self.contact else "")

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()  # which reads SSL_CERT_FILE and SSL_CERT_DIR
        if self.bundle is not None:
            is_folder = Path(self.bundle).is_dir()
            where = {"capath": self.bundle} if is_folder else {"cafile": self.bundle}
            with _reported_as(BUNDLE, self.bundle):
                context.load_verify_locations(**where)
        if self.certificate is not None:
            with _reported_as(CERTIFICATE, self.certificate):
                context.load_cert_chain(self.certificate, self.key)
        return context


class NetworkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the network is used, where the environment is not to say it.

    `proxy` is the address of a proxy for http and https, or "" for none; `ca` a file, or a folder,
    with authorities that are trusted besides; `certificate` and `key` are what is shown to a server
    that asks who we are. The `headers` go to the origin that was named, and to no other.
    What is left out is as the environment says.
    """

    proxy: str | None = None
    ca: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None
    headers: Mapping[str, str] | None = None
    timeout_seconds: float | None = None


NAMES_AS_GIVEN = {BUNDLE: "ca", CERTIFICATE: "certificate", KEY: "key", "--header ": "headers: "}
"""What an argument is called where a variable, or an option of a command, is called otherwise."""


def network_of(options: NetworkOptions | None, known: Network | None = None) -> Network:
    """The options, and what is known, or what the environment says, where they say nothing.

    `InvalidArgument` for an option that cannot be used.
    """
    known = Network.of(os.environ) if known is None else known
    if options is None:
        return known
    try:
        found = _with(known, options)
        if options.ca is not None or options.certificate is not None:
            found.tls()
    except InvalidSettings as error:
        said = str(error)
        for name, ours in NAMES_AS_GIVEN.items():
            said = said.replace(name, ours)
        raise InvalidArgument(said) from None
    return found


def _with(known: Network, options: NetworkOptions) -> Network:
    if options.key is not None and options.certificate is None:
        raise InvalidSettings(f"{KEY} is given without {CERTIFICATE}")
    given: dict[str, Any] = {}
    if options.proxy is not None:
        proxy = parse_proxy("proxy", options.proxy) if options.proxy else None
        given["proxies"] = Proxies({} if proxy is None else dict.fromkeys(PORTS, proxy))
    if options.ca is not None:
        given["bundle"] = str(options.ca)
    if options.certificate is not None:
        given["certificate"] = str(options.certificate)
        given["key"] = None if options.key is None else str(options.key)
    if options.timeout_seconds is not None:
        given["timeout_seconds"] = options.timeout_seconds
    said = (parse_header(f"{name}: {value}") for name, value in (options.headers or {}).items())
    return replace(known, headers=(*known.headers, *said), **given)


def check_names(environment: Mapping[str, str]) -> None:
    """For commands: without its certificate a client is a stranger, and would not say so.

    In an application's environment such a name may be the application's own.
    """
    unknown = [
        name
        for name in environment
        if name.startswith("RSNOTIFY_CLIENT_") and name not in (CERTIFICATE, KEY)
    ]
    if unknown:
        raise InvalidSettings(
            *(f"{name} is no setting: set {CERTIFICATE} and {KEY}" for name in unknown)
        )


def parse_header(text: str) -> GivenHeader:
    """`Name: value`, or `HOST Name: value`.

    >>> parse_header("data.example.org X-Key: abc")
    GivenHeader(host='data.example.org', name='X-Key', value='abc')
    """
    before, colon, value = text.partition(": ")
    host, _, name = before.rpartition(" ")
    value = value.strip()
    if not colon or wrong_token(value) or not name.replace("-", "").isalnum() or " " in host:
        named = before.split(" ")[-1].partition(":")[0]  # the value may be secret
        raise InvalidSettings(
            f"--header {named}…: write 'Name: value', or 'HOST Name: value' for another host"
        )
    if name.lower() in ("host", "content-length", "transfer-encoding", "connection", "range"):
        raise InvalidSettings(f"--header {name}: this one is ours to say")
    return GivenHeader(host.lower() or None, name, value)


class Credentials:
    """What is shown to whom: a token or a password, headers, cookies."""

    def __init__(self, network: Network, token: Token | HeldToken | None, url: str | None) -> None:
        self._network = network
        self.token = HeldToken.of(token)
        self._first = None if url is None else origin(url)
        self._login = None if url is None else _login(url)
        # Not `cached_property`, which has a lock in Python 3.11: a fork would leave it locked.
        self._netrc = cache(partial(_netrc_in, network.netrc))
        self._jar = cache(partial(_cookies_in, network.cookies))

    @property
    def has_function(self) -> bool:
        """Whether the token is a function, for which one may wait."""
        return self.token is not None and self.token.can_be_renewed

    def headers(
        self, url: str, *, is_asked_for: bool = True, seconds: float = ANSWER_SECONDS
    ) -> dict[str, str]:
        """All for this address; a redirect leads to what nobody has asked for.

        A token function is waited for, so many seconds at most.
        """
        host, is_first = _host(url), self._first is not None and origin(url) == self._first
        found = self._given(url, host, is_first=is_first) if self._network.headers else {}
        if self._network.cookies is not None and (cookie := self._cookie(url)):
            found.setdefault("Cookie", cookie)
        if "authorization" not in map(str.lower, found):
            is_own = is_first or (self._first is None and is_asked_for)
            if self.token is not None and is_own:
                found["Authorization"] = BEARER + self.token.shown(seconds)
            elif shown := self._login_for(url, is_own=is_own, is_asked_for=is_asked_for):
                found["Authorization"] = shown
        return found

    def has_others(self, than: Mapping[str, str], seconds: float = ANSWER_SECONDS) -> bool:
        """Whether there is another token than that of these headers, which were refused."""
        shown = than.get("Authorization", "")
        if self.token is None or not shown.startswith(BEARER):
            return False
        return self.token.has_another(shown.removeprefix(BEARER), seconds)

    def seconds_left(self, of: Mapping[str, str]) -> float:
        """How long no other token is to be asked for than that of these headers."""
        shown = of.get("Authorization", "")
        if self.token is None or not shown.startswith(BEARER):
            return inf
        return self.token.seconds_left(shown.removeprefix(BEARER))

    def _given(self, url: str, host: str, *, is_first: bool) -> dict[str, str]:
        is_downgrade = self._first is not None and self._first[0] == "https" != origin(url)[0]
        hosts = () if is_downgrade else (host, host.rpartition(":")[0])
        return {
            each.name: each.value
            for each in self._network.headers
            if (is_first if each.host is None else each.host in hosts)
        }

    def _login_for(self, url: str, *, is_own: bool, is_asked_for: bool) -> str | None:
        own = _login(url) if self._first is None else self._login  # never what a Source wrote
        if own is not None and is_own:
            return own
        return self._of_netrc(url, is_own=is_own) if is_asked_for else None

    def _of_netrc(self, url: str, *, is_own: bool) -> str | None:
        """The login in .netrc for this address; never its `default`: a list may name any host.

        At the user's own address it counts whatever the scheme and the port, since the user named
        them.
        """
        if (logins := self._netrc()) is None:
            return None
        scheme, host, port = origin(url)
        names = [f"{host}:{port}"]
        if is_own or port == PORTS.get(scheme):
            names.append(host)
        for name in names if is_own or scheme == "https" else ():
            if name != "default" and name in logins.hosts:
                user, _, password = logins.hosts[name]
                return _basic(user, password or "")
        return None

    def _cookie(self, url: str) -> str | None:
        from urllib.request import Request  # noqa: PLC0415 - seldom needed

        request = Request(url)  # noqa: S310 - it is not sent
        self._jar().add_cookie_header(request)
        return request.get_header("Cookie")


def _netrc_in(path: str | None) -> netrc | None:
    if path is None or not Path(path).is_file():
        return None
    try:
        return netrc(path)
    except (OSError, NetrcParseError, UnicodeDecodeError) as error:
        why = getattr(error, "msg", None) or getattr(error, "strerror", None) or "no text"
        log.warning("%s is left out: %s", path, why)
        return None


def _cookies_in(path: str | None) -> "MozillaCookieJar":
    from http.cookiejar import LoadError, MozillaCookieJar  # noqa: PLC0415 - seldom needed

    jar = MozillaCookieJar(path)
    try:
        jar.load(ignore_discard=True, ignore_expires=True)
    except (LoadError, OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no file of cookies as browsers keep it"
        raise InvalidSettings(f"--cookies {path}: {why}") from None
    for cookie in jar:
        cookie.expires = cookie.expires or None  # browsers write 0 for those of a session
    return jar


def without_login(url: str) -> str:
    """The address as it is asked for, and as it may be shown.

    >>> without_login("https://user:secret@a.example/x")
    'https://a.example/x'
    """
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _login(url: str) -> str | None:
    """The user and password that an address brings, as they are shown."""
    if "@" not in url:
        return None
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return _basic(unquote(parts.username), unquote(parts.password or ""))


def _basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _host(url: str) -> str:
    """The name, and the port if one is said."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


@contextmanager
def _reported_as(name: str, value: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror
        if isinstance(error, ssl.SSLError):
            why = "it is no certificate" + (NO_KEY if name == CERTIFICATE else "")
        raise InvalidSettings(f"{name}={value}: {why}") from None


class OutOfReach(OSError):
    """An address that a Source may not send anybody to."""


class Reach:
    """Which addresses one Source may send its readers to."""

    def __init__(
        self,
        url: str,
        *,
        same_site: bool = False,
        source_kinds: dict[str, str | None] | None = None,
    ) -> None:
        self._host = _host_of(url)
        self._same_site = same_site
        self._source_kinds = {} if source_kinds is None else source_kinds
        if (known := literal_address(self._host)) is not None:
            self._source_kinds.setdefault(self._host, _kind_of(known))

    def why_not_asked(self, url: str) -> str | None:
        """Why this address is not asked, not even through a proxy; None if it is.

        >>> Reach("http://a.example/", same_site=True).why_not_asked("http://b.a.example/x")
        >>> Reach("http://a.example/", same_site=True).why_not_asked("http://aa.example/x")
        'it is not at a.example, and --same-site is given'
        >>> Reach("http://a.example/").why_not_asked("http://2852039166/")
        '2852039166 is link-local: never asked'
        """
        host = _host_of(url)
        address = literal_address(host) or _written_as_number(host)
        if address is not None and (what := own_link(address)) is not None:
            return f"{host} is {what}: never asked"
        if not self._same_site or host == self._host or host.endswith(f".{self._host}"):
            return None
        return f"it is not at {self._host}, and --same-site is given"

    def why_not_connected(self, name: str, address: str) -> str | None:
        """Why the address that the name of a host has led to may not be connected to."""
        if (what := own_link(address)) is not None:
            return f"{name} is at {address}, which is {what}: never asked"
        if self._is_own(name) and self._host not in self._source_kinds:
            return None
        kind, own = _kind_of(address), self._source_kinds.get(self._host)
        is_private = kind is not None and refusal(behind_nat64(address), private=True) is None
        if kind is None or kind == own or (is_private and own is not None):
            return None
        if self._is_own(name):
            return f"{name} is at {address}, which is {kind}, and was elsewhere at first: not asked"
        return f"{name} is at {address}, which is {kind}, and the Source is not: not asked"

    def connected(self, name: str, address: str) -> str | None:
        """Note where the Source is, now that this address is connected to.

        Of several that connect at the same time the first decides; why another may not be used.
        """
        if self._is_own(name):
            self._source_kinds.setdefault(self._host, _kind_of(address))
        return self.why_not_connected(name, address)

    def _is_own(self, name: str) -> bool:
        return name.rstrip(".").lower() == self._host


def _host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def _kind_of(address: str) -> str | None:
    why = refusal(behind_nat64(address))
    return why and why.partition(" is ")[2]


def _written_as_number(host: str) -> str | None:
    """The IPv4 address in a form that resolvers take besides: 2852039166, 0xa9.0376.43518."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError):
        return None
