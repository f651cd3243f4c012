"""Where Redis is: an address as the operator writes it, judged without dialling.

One server:  redis://[user:password@]host[:port][/database]   rediss:// with TLS   unix://path
Sentinels:   redis+sentinel://[user:password@]host[:port],host[:port]/name[/database]
             rediss+sentinel:// with TLS, to the Sentinels too
A Cluster:   redis+cluster://[user:password@]host[:port],host[:port]   some of its nodes, or all
             rediss+cluster:// with TLS

User and password are those of Redis. What the Sentinels want stands behind the `?`, as
`sentinel_username` and `sentinel_password`; so do the files of TLS, as `ssl_ca_certs`,
`ssl_certfile` and `ssl_keyfile`.
"""

import asyncio
import re
from pathlib import Path
from ssl import SSLContext
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from redis.asyncio.connection import BlockingConnectionPool, SSLConnection, parse_url
from redis.exceptions import RedisError

from rsnotify.errors import InvalidSettings, RedisRefuses
from rsnotify.redis_client.failures import judge_error

LISTEN_SECONDS = 1.0
PORT = 6379
SENTINEL_PORT = 26379
SENTINEL, CLUSTER = "+sentinel", "+cluster"
SCHEMES = (
    "redis",
    "rediss",
    "unix",
    *(f"{scheme}{kind}" for kind in (SENTINEL, CLUSTER) for scheme in ("redis", "rediss")),
)
UNESCAPED = (
    "write / ? # @ in a user or password as %2F %3F %23 %40, or the password in "
    "RSNOTIFY_REDIS_PASSWORD as it is"
)
FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}

Host = tuple[str, int]


class Address(NamedTuple):
    """The options for the client library, and which Sentinels or nodes know where Redis is."""

    options: dict[str, Any]
    sentinels: tuple[Host, ...] = ()
    name: str = ""  # as the Sentinels call it
    sentinel_options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    nodes: tuple[Host, ...] = ()  # of a Cluster

    @property
    def fails_over(self) -> bool:
        """Whether a replica takes over by itself, with what it has."""
        return bool(self.sentinels or self.nodes)

    @property
    def has_tls(self) -> bool:
        return self.options.get("connection_class") is SSLConnection

    @staticmethod
    def parse(url: str) -> "Address":
        """The address, or `InvalidSettings` with what is wrong with it."""
        try:
            return _checked(_parsed(url))
        except TypeError as error:
            wrong = f"it has an unknown option: {str(error).rpartition(' ')[2]}"
        except (ValueError, OSError, RedisError) as error:
            wrong = UNESCAPED if _is_unescaped(url) else str(error)
            if url and ":/" not in url:
                scheme = "unix" if url.startswith("/") else "redis"
                wrong = f"write {scheme}://{Address.without_password(url)}"
        raise InvalidSettings(f"--redis {Address.without_password(url)!r}: {wrong}")

    @staticmethod
    def with_password(url: str, password: str) -> str:
        """The same address with a password, in the place of one that it may have."""
        scheme, _, rest = url.partition("://")
        if scheme == "unix":
            return f"{url}{'&' if '?' in url else '?'}{urlencode({'password': password})}"
        netloc, slash, behind = rest.partition("/")
        user, _, hosts = netloc.rpartition("@")
        user, _, _ = user.partition(":")
        return f"{scheme}://{user}:{quote(password, safe='')}@{hosts}{slash}{behind}"

    @staticmethod
    def without_password(url: str) -> str:
        """The address as it may be shown: without all before the last `@`, for a password may hold
        what it should not."""
        shown = _without_passwords_in_query(url)
        before, at, host = shown.rpartition("@")
        if not at or shown.startswith("unix:"):
            return shown
        scheme, separator, _ = before.partition("://")
        return f"{scheme}://…@{host}" if separator else f"…@{host}"

    async def refusal_of_tls(self) -> str | None:
        """Why the other side refuses us, read before we say anything.

        Who has begun to speak may see nothing but a lost connection.
        """
        if not self.has_tls or self.sentinels or self.nodes:
            return None
        host, port = self.options["host"], self.options.get("port", PORT)
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=_tls_context(self.options)
                )
                try:
                    await reader.read(1)
                finally:
                    writer.transport.abort()
        except OSError as error:  # a timeout is one too
            judged = judge_error(error)
            return judged.detail if isinstance(judged, RedisRefuses) else None
        return None


def _parsed(url: str) -> Address:
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise ValueError(f"it must begin with one of {', '.join(SCHEMES)}, and then ://")
    if scheme.endswith(SENTINEL):
        return _of_sentinels(scheme.removesuffix(SENTINEL), rest)
    if scheme.endswith(CLUSTER):
        return _of_cluster(scheme.removesuffix(CLUSTER), rest)
    return Address(dict(parse_url(url)))


def _without_passwords_in_query(url: str) -> str:
    return re.sub(r"(?<=password=)[^&]*", "…", url)


def _is_unescaped(url: str) -> bool:
    """Whether a user or password has a character that ends the part of the address before it."""
    scheme, _, rest = _without_passwords_in_query(url).partition("://")
    return scheme != "unix" and re.search("[/?#]", rest.rpartition("@")[0]) is not None


def _of_sentinels(scheme: str, rest: str) -> Address:
    before, _, options = rest.partition("?")
    netloc, _, path = before.partition("/")
    user, at, hosts = netloc.rpartition("@")
    name, _, database = path.strip("/").partition("/")
    if not name:
        raise ValueError("it needs the name of the primary: redis+sentinel://host,host/name")
    asked = dict(parse_qsl(options))
    of_sentinels = {key: asked.pop(key) for key in list(asked) if key.startswith("sentinel_")}
    query = urlencode(asked)
    own = {key.removeprefix("sentinel_"): value for key, value in of_sentinels.items()}
    of_tls = urlencode({key: value for key, value in asked.items() if key.startswith("ssl_")})
    return Address(
        dict(parse_url(f"{scheme}://{user}{at}sentinel/{database}?{query}")),
        tuple(_host(each, SENTINEL_PORT) for each in hosts.split(",") if each),
        name,
        dict(parse_url(f"{scheme}://sentinel?{of_tls}")) | own,
    )


def _of_cluster(scheme: str, rest: str) -> Address:
    before, _, options = rest.partition("?")
    netloc, _, path = before.partition("/")
    if path.strip("/") not in ("", "0"):
        raise ValueError("a Cluster has no numbered databases: leave out what follows the hosts")
    user, at, hosts = netloc.rpartition("@")
    nodes = tuple(_host(each, PORT) for each in hosts.split(",") if each)
    if not nodes:
        raise ValueError("it names no node: redis+cluster://host:port,host:port")
    parsed = dict(parse_url(f"{scheme}://{user}{at}node?{options}"))
    del parsed["host"]
    return Address(parsed, nodes=nodes)


def _host(text: str, port: int) -> Host:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(f"{text!r} is no host: write them as host:port,host:port")
    return parts.hostname, parts.port or port


def _checked(address: Address) -> Address:
    """Its options are known to the client library, and its files can be read."""
    if address.name and not address.sentinels:
        raise ValueError("it names no Sentinel: redis+sentinel://host,host/name")
    for options in (address.options, address.sentinel_options):
        for file in FILES & options.keys():
            Path(options[file]).read_bytes()
        _tls_context(options)
    return address


def _tls_context(options: dict[str, Any]) -> SSLContext | None:
    pool: Any = BlockingConnectionPool(**options | {"driver_info": None})  # else read from a file
    connection = pool.make_connection()
    return connection.ssl_context.get() if isinstance(connection, SSLConnection) else None
