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

from rsnotify.access.base_url import BASE_BYTES
from rsnotify.errors import InvalidSettings

PREFIX = "RSNOTIFY_"
FILE = "_FILE"
IpNetwork = IPv4Network | IPv6Network
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
        "SOURCE_TOKEN_FILE",
        "TOKEN",
        "TOKEN_FILE",
        "URL",
    )
)
OF_HOOKS = tuple(f"RSNOTIFY_{name}" for name in ("EVENT", "LOC", "PATH"))  # set by `mirror --exec`
WORKER = "_RSNOTIFY_WORKER"  # the number of a worker, set by its parent

_WEB_ADDRESS = re.compile(
    r"https?://[^\s\x00-\x20<>\"{}|\\^`?#@/]+(?:/[^\s\x00-\x20<>\"{}|\\^`?#]*)?"
).fullmatch
_EMAIL = re.compile(r"[!-?A-~]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+").fullmatch
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


def _public_address(text: str) -> str:
    """No longer than documents allow for: each of their links begins with it."""
    address = _web_address(text)
    if not address.isascii():
        raise ValueError(f"must be in ASCII, as links are: {_how_in_ascii(address)}")
    size = len(address.replace("&", "&amp;"))  # which is all that XML escapes of it
    if size > BASE_BYTES:
        raise ValueError(f"must have at most {BASE_BYTES} bytes in XML, and has {size}")
    return address


def _how_in_ascii(address: str) -> str:
    from rsnotify.resourcesync.change import as_ascii  # noqa: PLC0415

    encoded = as_ascii(address)
    return "no host has such a name" if "%" in urlsplit(encoded).netloc else f"write {encoded}"


def _linked_address(text: str) -> str:
    """No longer than the address of a set may be."""
    from rsnotify.resourcesync.change_rules import URI_CHARACTERS  # noqa: PLC0415

    address = _web_address(text)
    if len(address) > URI_CHARACTERS:
        raise ValueError(f"must have at most {URI_CHARACTERS} characters, and has {len(address)}")
    return address


def _email(text: str) -> str:
    if not _EMAIL(text):
        raise ValueError("must be an address such as admin@hub.example.org")
    return text


def is_web_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _key(text: str) -> str:
    """Looked at by what judges JWTs, which takes long to load."""
    from rsnotify.access.jwt_rules import parse_key  # noqa: PLC0415

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


def _networks(text: str) -> tuple[IpNetwork, ...]:
    try:
        return tuple(ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise ValueError(f"must be addresses such as 10.0.0.0/8, ::1: {error}") from None


def _setting(default: Any, read: Callable[[str], Any], *, is_secret: bool = False) -> Any:
    return field(default=default, metadata={"read": read, "is_secret": is_secret})


@dataclass(frozen=True)
class Settings:
    """What the operator may choose; `docs/reference/settings.md` says what each means."""

    host: str = _setting("127.0.0.1", str)
    port: int = _setting(8080, _whole(0, 65535))
    data: Path = _setting(Path("data"), Path)
    redis_url: str | None = _setting(None, str, is_secret=True)
    redis_password: str | None = _setting(None, str, is_secret=True)
    replicas: int | None = _setting(None, _whole(0, 100))
    replicas_confirm: str = _setting("memory", _one_of("memory", "disk"))
    public_url: str | None = _setting(None, _public_address)
    admin_token: str | None = _setting(None, str, is_secret=True)
    workers: int = _setting(1, _whole(1, 64))
    allowed_origins: tuple[str, ...] | None = _setting(None, _origins)
    jwt_key: str | None = _setting(None, _key, is_secret=True)
    jwks: str | None = _setting(None, _key_set)
    jwks_seconds: int = _setting(60, _whole(1, 86_400))
    jwt_audience: str | None = _setting(None, str)
    jwt_skew_seconds: int = _setting(10, _whole(0, 300))
    page: str = _setting("on", _one_of("on", "off"))
    validate_urls: str = _setting("admin", _one_of("admin", "everybody"))
    send_timeout_seconds: int = _setting(60, _whole(1, 86_400))
    channel_compression: str = _setting("on", _one_of("on", "off"))
    drain_seconds: int = _setting(5, _whole(0, 3_600))
    long_poll_seconds: int = _setting(25, _whole(2, 300))
    changelist_max: int = _setting(10_000, _whole(1, 50_000))
    page_size: int = _setting(50_000, _whole(1, 50_000))
    callback_private: str = _setting("refuse", _one_of("refuse", "allow"))
    proxy: str | None = _setting(None, _proxy_address, is_secret=True)
    deliveries: int = _setting(100, _whole(1, 10_000))
    deliveries_per_host: int = _setting(4, _whole(1, 1_000))
    pending_per_host: int = _setting(250, _whole(1, 100_000))
    pending_per_address: int = _setting(500, _whole(1, 100_000))
    subscriptions_per_host: int = _setting(1_000, _whole(1, 1_000_000))
    subscriptions_per_address: int = _setting(1_000, _whole(1, 1_000_000))
    signature: str = _setting("sha256", _one_of("sha256", "sha1", "sha384", "sha512"))
    lease_seconds: int = _setting(864_000, _whole(1, 31 * 24 * 3600))
    changelist_hours: int = _setting(24, _whole(1, 744))
    changelist_days: int = _setting(30, _whole(1, 3650))
    retention_days: int = _setting(365, _whole(1, 36_500))
    resourcelist_minutes: int = _setting(60, _whole(1, 525_600))
    resourcelist_archive: int = _setting(10, _whole(0, 10_000))
    resourcelist_archive_days: int = _setting(30, _whole(1, 3650))
    describedby: str | None = _setting(None, _linked_address)
    admin_email: str | None = _setting(None, _email)
    cache_mb: int = _setting(256, _whole(64, 1_048_576))
    connections: int = _setting(50_000, _whole(1, 1_000_000))
    connections_per_address: int = _setting(20_000, _whole(1, 1_000_000))
    readers_per_channel: int = _setting(50_000, _whole(1, 1_000_000))
    cold_pulls: int = _setting(32, _whole(1, 10_000))
    publishes_per_second: int = _setting(10_000, _whole(1, 1_000_000))
    log: str = _setting("text", _one_of("text", "json"))
    log_level: str = _setting("info", _one_of("debug", "info", "warning", "error"))
    access_log: str = _setting("off", _one_of("on", "off"))
    metrics_token: str | None = _setting(None, _header_text, is_secret=True)
    trusted_proxies: tuple[IpNetwork, ...] = _setting((), _networks)

    @classmethod
    def from_env(cls, environ: Mapping[str, str], **chosen: object) -> Self:
        """The environment's settings, under those chosen on the command line (None: not chosen)."""
        settings, problems = cls.judged(environ, **chosen)
        if problems:
            raise InvalidSettings(*problems)
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


def misspelt(environ: Mapping[str, str]) -> list[str]:
    """Of variables that neither the hub nor a command reads: which one may be meant."""
    settings = {PREFIX + each.name.upper(): each for each in fields(Settings)}
    secrets = [name + FILE for name, each in settings.items() if each.metadata["is_secret"]]
    known = dict.fromkeys((*settings, *secrets, *OF_CLIENTS, *OF_HOOKS))
    unknown = [name for name in environ if name.startswith(PREFIX) and name not in known]
    return [f"{name} is no setting{_meant(name, known)}" for name in unknown]


def for_worker(environ: Mapping[str, str], redis_url: str) -> dict[str, str]:
    """The variables of a process that the hub starts: they say once where Redis is. Its password is
    read again, from the file where it stands.
    """
    kept = {name: text for name, text in environ.items() if name != PREFIX + "REDIS_URL" + FILE}
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
    ends = [each.removeprefix(PREFIX) for each in known]
    close = difflib.get_close_matches(name.removeprefix(PREFIX), ends, n=1)
    return (
        f"; did you mean {PREFIX}{close[0]}?"
        if close
        else "; see docs/reference/settings.md for all of them"
    )
