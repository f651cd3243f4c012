"""Every setting of the hub: what it may be, and where its value comes from.

An unknown `RSNOTIFY_` name is an error, because a misspelt setting would be ignored silently.
Options are checked in the same way as variables. All problems are reported together. A secret may
stand in a file: `RSNOTIFY_…_FILE` names it.
"""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from rsnotify.errors import InvalidSettings

PREFIX = "RSNOTIFY_"
FILE = "_FILE"
Network = IPv4Network | IPv6Network
RawSetting = tuple[Field[Any] | None, str, str]  # the setting, how it was written, its text
# read by the commands, not by the hub
OF_CLIENTS = frozenset(
    f"RSNOTIFY_{name}"
    for name in (
        "CLIENT_CERTIFICATE",
        "CLIENT_KEY",
        "CONTACT",
        "DATABASE",
        "SOURCE_TOKEN",
        "TOKEN",
        "URL",
    )
)
WORKER = "_RSNOTIFY_WORKER"  # the number of a worker, set by its parent

_WEB_ADDRESS = re.compile(
    r"https?://[^\s\x00-\x20<>\"{}|\\^`?#@/]+(?:/[^\s\x00-\x20<>\"{}|\\^`?#]*)?"
).fullmatch
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@,]+").fullmatch
_HEADER_TEXT = re.compile(r"[!-~](?:[ -~]*[!-~])?").fullmatch


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(origin.strip().rstrip("/") for origin in text.split(",") if origin.strip())
    for origin in origins:
        if origin not in ("*", "null") and not _ORIGIN(origin):
            raise ValueError(f"must be origins such as https://a.example, or *: {origin!r} is none")
    return origins


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return text

    return read


def _web_address(text: str) -> str:
    if not _WEB_ADDRESS(text) or not _has_port_in_range(text):
        raise ValueError("must be an address such as https://hub.example.org")
    return text.rstrip("/")


def is_web_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _key(text: str) -> str:
    """Looked at by what judges JWTs, which takes long to load."""
    from rsnotify.registry.jwt_rules import parse_key  # noqa: PLC0415

    parse_key(text)
    return text


def _key_set(text: str) -> str:
    if is_web_address(text):
        return _web_address(text)
    if "://" in text or not Path(text).is_file():
        raise ValueError("must be an https address of a JWKS, or a file")
    return text


def _proxy_address(text: str) -> str:
    parts = urlsplit(text) if _has_port_in_range(text) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an address such as http://user:password@proxy.example.org:3128")
    return text.rstrip("/")


def _has_port_in_range(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def _header_text(text: str) -> str:
    if text and not _HEADER_TEXT(text):
        raise ValueError("must be visible ASCII, or no client could send it")
    return text


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise ValueError(f"must be addresses such as 10.0.0.0/8, ::1: {error}") from None


def _setting(
    default: Any, read: Callable[[str], Any], about: str, *, is_secret: bool = False
) -> Any:
    about_it = {"read": read, "about": about, "is_secret": is_secret}
    return field(default=default, metadata=about_it)


@dataclass(frozen=True)
class Settings:
    """What the operator may choose."""

    host: str = _setting("127.0.0.1", str, "address to listen on")
    port: int = _setting(8080, _whole(0, 65535), "port to listen on; 0 takes a free one")
    data: Path = _setting(Path("data"), Path, "directory of the embedded Redis and the admin token")
    redis_url: str | None = _setting(
        None,
        str,
        "a Redis of your own, such as redis://localhost:6379/0; else one is embedded",
        is_secret=True,
    )
    redis_password: str | None = _setting(
        None, str, "the password of that Redis, to keep it out of its address", is_secret=True
    )
    replicas: int = _setting(
        0, _whole(0, 100), "replicas of Redis that must have what the hub says it has stored"
    )
    public_url: str | None = _setting(
        None, _web_address, "the address others reach the hub by; stands in every document"
    )
    admin_token: str | None = _setting(
        None,
        str,
        "the token that may do everything; else one is made and kept in the data directory",
        is_secret=True,
    )
    workers: int = _setting(1, _whole(1, 64), "number of hub processes that share the port")
    allowed_origins: tuple[str, ...] | None = _setting(
        None,
        _origins,
        "origins whose pages may read, such as https://a.example, or *; "
        "else all may read public sets, none private ones",
    )
    jwt_key: str | None = _setting(
        None,
        _key,
        "a secret or public key in PEM: JWTs signed with it (HS256, RS256, ES256, EdDSA) count",
        is_secret=True,
    )
    jwks: str | None = _setting(
        None, _key_set, "the address or file of a JWKS whose keys sign JWTs, read again and again"
    )
    jwks_seconds: int = _setting(60, _whole(1, 86_400), "seconds between two readings of the JWKS")
    jwt_audience: str | None = _setting(
        None, str, "what the aud of a JWT must have; else a JWT with an aud is refused"
    )
    jwt_skew_seconds: int = _setting(
        10, _whole(0, 300), "seconds by which the clocks of those who make JWTs may be ahead"
    )
    page: str = _setting("on", _one_of("on", "off"), "whether people get a page at /")
    validate_urls: str = _setting(
        "admin",
        _one_of("admin", "everybody"),
        "who may have the hub fetch a document to validate it, from where callbacks may be",
    )
    send_timeout_seconds: int = _setting(
        60, _whole(1, 86_400), "seconds after which a reader that reads nothing is disconnected"
    )
    channel_compression: str = _setting(
        "on", _one_of("on", "off"), "whether channels are compressed for readers that offer it"
    )
    drain_seconds: int = _setting(
        5, _whole(0, 3_600), "seconds over which readers are disconnected at shutdown"
    )
    changelist_max: int = _setting(10_000, _whole(1, 50_000), "changes that one Change List holds")
    page_size: int = _setting(
        50_000, _whole(1, 50_000), "changes after a ?from=, and entries of a page, at most"
    )
    callback_private: str = _setting(
        "refuse",
        _one_of("refuse", "allow"),
        "whether WebSub callbacks on loopback and private networks may be called",
    )
    proxy: str | None = _setting(
        None,
        _proxy_address,
        "the proxy by which WebSub callbacks are called, and documents fetched for /api/validate",
        is_secret=True,
    )
    deliveries: int = _setting(100, _whole(1, 10_000), "WebSub requests under way at once")
    deliveries_per_host: int = _setting(4, _whole(1, 1_000), "of these to one host and port")
    pending_per_host: int = _setting(
        250, _whole(1, 100_000), "verifications that may be pending for one callback host"
    )
    pending_per_asker: int = _setting(
        500, _whole(1, 100_000), "verifications that may be pending for one address that asks"
    )
    subscriptions_per_host: int = _setting(
        1_000, _whole(1, 1_000_000), "confirmed subscriptions that one callback host may have"
    )
    subscriptions_per_asker: int = _setting(
        1_000, _whole(1, 1_000_000), "confirmed subscriptions that one address may have asked for"
    )
    signature: str = _setting(
        "sha256",
        _one_of("sha256", "sha1", "sha384", "sha512"),
        "algorithm of X-Hub-Signature; sha1 only for receivers that know no other",
    )
    lease_seconds: int = _setting(
        864_000, _whole(1, 31 * 24 * 3600), "lease of a subscription that asks for none"
    )
    changelist_hours: int = _setting(
        24, _whole(1, 744), "hours between the edges of the UTC grid on which Change Lists close"
    )
    changelist_days: int = _setting(
        30, _whole(1, 3650), "days a closed Change List stays in the index, before the archive"
    )
    retention_days: int = _setting(
        365, _whole(1, 36_500), "days a closed Change List can be pulled; then it is gone"
    )
    resourcelist_minutes: int = _setting(
        60, _whole(1, 525_600), "minutes between two Resource Lists of a set that changes"
    )
    resourcelist_archive: int = _setting(
        10, _whole(0, 10_000), "replaced Resource Lists of a set that can still be pulled"
    )
    resourcelist_archive_days: int = _setting(
        30, _whole(1, 3650), "days that a replaced Resource List can be pulled; then it is gone"
    )
    describedby: str | None = _setting(
        None, _web_address, "a document that describes this Source; in the Source Description"
    )
    cache_mb: int = _setting(
        256,
        _whole(64, 1_048_576),
        "MiB of memory, of each hub process, for what it keeps of the journals",
    )
    connections: int = _setting(
        50_000, _whole(1, 1_000_000), "connections that a hub process takes in all"
    )
    connections_per_address: int = _setting(
        20_000, _whole(1, 1_000_000), "connections from one address, and channels that it reads"
    )
    readers_per_channel: int = _setting(
        50_000, _whole(1, 1_000_000), "readers of one channel in a hub process"
    )
    cold_pulls: int = _setting(
        32, _whole(1, 10_000), "readers at once of changes that are no longer in the stream"
    )
    publishes_per_second: int = _setting(
        10_000, _whole(1, 1_000_000), "requests to publish that a token may send in a second"
    )
    log: str = _setting("text", _one_of("text", "json"), "how each line of the log is written")
    log_level: str = _setting(
        "info", _one_of("debug", "info", "warning", "error"), "what is logged: this and worse"
    )
    access_log: str = _setting("off", _one_of("on", "off"), "whether each request is logged")
    metrics_token: str | None = _setting(
        None,
        _header_text,
        "the token that /metrics wants; else everybody may read it, without private sets",
        is_secret=True,
    )
    trusted_proxies: tuple[Network, ...] = _setting(
        (), _networks, "addresses or networks, with commas, whose X-Forwarded headers count"
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str], **chosen: object) -> Self:
        """The environment's settings, under those chosen on the command line (None: not chosen)."""
        settings, problems = cls.judged(environ, **chosen)
        if problems:
            raise InvalidSettings(problems)
        return settings

    @classmethod
    def judged(cls, environ: Mapping[str, str], **chosen: object) -> tuple[Self, list[str]]:
        """The settings, with the default in place of what is wrong; and all that is wrong."""
        known = {PREFIX + each.name.upper(): each for each in fields(cls)}
        environ, unreadable = _with_secrets(environ, known)
        raw = [
            (known.get(name), _shown(name, text, known), text)
            for name, text in environ.items()
            if name.startswith(PREFIX) and name not in OF_CLIENTS
        ]
        raw += [
            (known[PREFIX + name.upper()], f"{option_of(name)} {value}", str(value))
            for name, value in chosen.items()
            if value is not None
        ]
        values, problems = _read(raw, known)
        settings = cls(**values)
        return settings, [*unreadable, *problems, *settings.problems_together()]

    def problems_together(self) -> list[str]:
        """Of values that each may be right, but not with each other."""
        if self.retention_days >= self.changelist_days:
            return []
        return [
            f"RSNOTIFY_RETENTION_DAYS={self.retention_days} is below "
            f"RSNOTIFY_CHANGELIST_DAYS={self.changelist_days}: the index would name Change "
            f"Lists that are gone; keep lists for {self.changelist_days} days or more, "
            f"or let them leave the index after {self.retention_days}"
        ]


def for_worker(environ: Mapping[str, str], redis_url: str) -> dict[str, str]:
    """The variables of a process that the hub starts: it is told once where Redis is."""
    told = {
        PREFIX + "REDIS_URL" + FILE,
        PREFIX + "REDIS_PASSWORD",
        PREFIX + "REDIS_PASSWORD" + FILE,
    }
    kept = {name: text for name, text in environ.items() if name not in told}
    return kept | {PREFIX + "REDIS_URL": redis_url}


def option_of(name: str) -> str:
    """The name of the setting on the command line."""
    return "--redis" if name == "redis_url" else f"--{name.replace('_', '-')}"


def _with_secrets(
    environ: Mapping[str, str], known: Mapping[str, Any]
) -> tuple[dict[str, str], list[str]]:
    """The variables with what stands in the files of secrets, and why some cannot be read."""
    found, problems = dict(environ), []
    for name in (name for name, setting in known.items() if setting.metadata["is_secret"]):
        file = found.pop(name + FILE, None)
        if file is None:
            continue
        if name in found:
            problems.append(f"{name} and {name}{FILE} are both given: leave one of them out")
        try:
            found[name] = Path(file).read_text().strip()
        except (OSError, UnicodeError) as error:
            problems.append(f"{name}{FILE}={file!r}: {error}")
            continue
        if not found[name]:
            problems.append(f"{name}{FILE}={file!r}: the file is empty")
    return found, problems


def _shown(name: str, text: str, known: Mapping[str, Field[Any]]) -> str:
    """A variable as a message shows it: of a secret only its name."""
    return name if name in known and known[name].metadata["is_secret"] else f"{name}={text!r}"


def _read(raw: Sequence[RawSetting], known: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The values, the last of each counts; and every problem."""
    values: dict[str, Any] = {}
    problems = []
    for setting, words, text in raw:
        if setting is None:
            name, _, _ = words.partition("=")
            problems.append(f"{name} is no setting{_meant(name, known)}")
            continue
        try:
            values[setting.name] = setting.metadata["read"](text)
        except ValueError as error:
            problems.append(f"{words}: {error}")
    return values, problems


def _meant(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return (
        f"; did you mean {close[0]}?"
        if close
        else "; see docs/reference/settings.md for all of them"
    )
