"""Every setting of the hub: what it may be, and where its value comes from.

An unknown `RSNOTIFY_` name is an error, because a misspelt setting would be ignored silently.
Options are checked in the same way as variables. All problems are reported together. A secret may
stand in a file: `RSNOTIFY_…_FILE` names it.
"""

import difflib
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
OF_CLIENTS = frozenset({"RSNOTIFY_DATABASE", "RSNOTIFY_TOKEN", "RSNOTIFY_URL"})


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(text)

    return read


def _origins(text: str) -> tuple[str, ...]:
    return tuple(origin.strip().rstrip("/") for origin in text.split(",") if origin.strip())


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return text

    return read


def _web_address(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ValueError("must be an address such as https://hub.example.org")
    return text.rstrip("/")


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
    deliveries: int = _setting(100, _whole(1, 10_000), "WebSub requests under way at once")
    deliveries_per_host: int = _setting(4, _whole(1, 1_000), "of these to one host and port")
    pending_per_host: int = _setting(
        250, _whole(1, 100_000), "verifications that may be pending for one callback host"
    )
    pending_per_asker: int = _setting(
        500, _whole(1, 100_000), "verifications that may be pending for one address that asks"
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
    trusted_proxies: tuple[Network, ...] = _setting(
        (), _networks, "addresses or networks, with commas, whose X-Forwarded headers count"
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str], **chosen: object) -> Self:
        """The environment's settings, under those chosen on the command line (None: not chosen)."""
        known = {PREFIX + each.name.upper(): each for each in fields(cls)}
        environ, unreadable = _with_secrets(environ, known)
        raw = [
            (known.get(name), f"{name}={text!r}", text)
            for name, text in environ.items()
            if name.startswith(PREFIX) and name not in OF_CLIENTS
        ]
        raw += [
            (known[PREFIX + name.upper()], f"{option_of(name)} {value}", str(value))
            for name, value in chosen.items()
            if value is not None
        ]
        settings = cls(**_read(raw, known, unreadable))
        settings.check_together()
        return settings

    def check_together(self) -> None:
        """Refuse values that each may be right, but not with each other."""
        if self.retention_days < self.changelist_days:
            raise InvalidSettings(
                [
                    f"RSNOTIFY_RETENTION_DAYS={self.retention_days} is below "
                    f"RSNOTIFY_CHANGELIST_DAYS={self.changelist_days}: the index would name Change "
                    f"Lists that are gone; keep lists for {self.changelist_days} days or more, "
                    f"or let them leave the index after {self.retention_days}"
                ]
            )


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
            problems.append(f"{name} and {name}{FILE} are both given: leave one of them away")
        try:
            found[name] = Path(file).read_text().strip()
        except (OSError, UnicodeError) as error:
            problems.append(f"{name}{FILE}={file!r}: {error}")
    return found, problems


def _read(
    raw: Sequence[RawSetting], known: Mapping[str, Any], unreadable: Sequence[str]
) -> dict[str, Any]:
    """The values, the last of each counts; every problem is reported."""
    values, problems = {}, list(unreadable)
    for setting, words, text in raw:
        if setting is None:
            name, _, _ = words.partition("=")
            problems.append(f"{name} is no setting{_meant(name, known)}")
            continue
        try:
            values[setting.name] = setting.metadata["read"](text)
        except ValueError as error:
            problems.append(f"{words}: {error}")
    if problems:
        raise InvalidSettings(problems)
    return values


def _meant(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return (
        f"; did you mean {close[0]}?"
        if close
        else "; see docs/reference/settings.md for all of them"
    )
