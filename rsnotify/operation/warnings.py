"""What is wrong although this process is ready: said beside that, and logged as it begins and ends.

Redis stores small changes but soon none; replicas do not confirm; Sentinels are away; two clocks
are apart; a certificate ends soon. Readers and documents are served all the same, so no proxy
should turn them away.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from time import time
from typing import Any, Literal

from rsnotify.coordination.clock import redis_now
from rsnotify.errors import TooFewReplicas
from rsnotify.redis_client import Client
from rsnotify.resourcesync.change import MICROSECONDS

MIB = 1024 * 1024
LOW_PERCENT = 10  # of `maxmemory`
LOW_BYTES = 16 * MIB  # what Redis needs for the largest request while it stores it, and more
ENDS_SOON_DAYS = 7  # a certificate; what renews them by itself is earlier
APART_SECONDS = 60.0  # clocks; NTP keeps them within some milliseconds

Kind = Literal["memory", "replicas", "sentinels", "clock", "certificate"]
ENDED: dict[Kind, str] = {
    "memory": "Redis has room again",
    "replicas": "replicas confirm what is published again",
    "sentinels": "most of the Sentinels answer again",
    "clock": "the clocks of Redis and of this machine agree again",
    "certificate": "the certificate of Redis does not end soon any more",
}

log = logging.getLogger(__name__)


class Warnings:
    """Those of this process, each logged when it begins, and its end."""

    def __init__(self) -> None:
        self._found: dict[Kind, str] = {}

    def now(self) -> list[str]:
        return list(self._found.values())

    def note(self, kind: Kind, text: str) -> None:
        """What is wrong now; nothing if it is well."""
        before = self._found.pop(kind, "")
        if text and not before:
            log.warning("%s", text)
        elif before and not text:
            log.warning("%s", ENDED[kind])
        if text:
            self._found[kind] = text

    def forget(self) -> None:
        """Something worse is said; what is still wrong after that is said anew."""
        self._found.clear()


def why_low(memory: Mapping[str, Any]) -> str:
    """Small changes are still stored, but soon none will be, and large requests are refused now."""
    limit = memory["maxmemory"]
    if not limit or left(memory) >= max(limit * LOW_PERCENT / 100, LOW_BYTES):
        return ""
    is_large = limit * LOW_PERCENT / 100 >= LOW_BYTES
    little = f"{LOW_PERCENT} %" if is_large else f"{LOW_BYTES // MIB} MiB"
    return (
        f"Redis is nearly full: less than {little} of its memory is left (maxmemory is {limit:,} "
        "bytes), and large publishes may get 507: give it more, or remove what is not needed"
    )


def left(memory: Mapping[str, Any]) -> int:
    """Of `maxmemory`, in bytes."""
    used: int = memory["used_memory"] - memory.get("mem_not_counted_for_evict", 0)
    return int(memory["maxmemory"]) - used


async def why_unconfirmed(client: Client, probes: Sequence[str], seconds: int) -> str:
    """Why replicas do not confirm what is published; `probes` are keys, one at each server."""
    if not client.confirms:
        return ""
    answers = await client.once([("SET", key, 1, "EX", seconds) for key in probes])
    away = [each.why.detail for each in answers if isinstance(each, TooFewReplicas)]
    if not away:
        return ""
    some = "" if len(away) == len(answers) else f" to the sets of {len(away)} nodes"
    return f"publishing{some} is answered 503: {away[0]}"


async def why_certificate_ends(client: Client) -> str:
    masters = (await client.masters()).values()
    ends = [at for each in masters if (at := await each.certificate_ends()) is not None]
    return why_ending(min(ends), time()) if ends else ""


def why_ending(at: float, now: float) -> str:
    """
    >>> why_ending(1_795_945_080, 1_795_945_080 - 7 * 24 * 3600 - 1)
    ''
    >>> why_ending(1_795_945_080, 1_795_945_080 - 7 * 24 * 3600)[:57]
    'the certificate of Redis ends on 2026-11-29 at 09:38 UTC:'
    """
    if at - now > ENDS_SOON_DAYS * 24 * 3600:
        return ""
    moment = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d at %H:%M} UTC"
    return (
        f"the certificate of Redis ends on {moment}: renew it, and let Redis read it (CONFIG SET "
        "tls-cert-file FILE); the hub cannot connect after that"
    )


async def why_clocks_differ(client: Client) -> str:
    before = time()
    of_redis = await redis_now(client) / MICROSECONDS
    return why_apart(of_redis - (before + time()) / 2)


def why_apart(ahead_seconds: float) -> str:
    """
    >>> why_apart(59.9), why_apart(60)[:40], why_apart(-7_200)[:44]
    ('', 'the clock of Redis is 1 min ahead of tha', 'the clock of Redis is 120 min behind that of')
    """
    if abs(ahead_seconds) < APART_SECONDS:
        return ""
    way = "ahead of" if ahead_seconds > 0 else "behind"
    return (
        f"the clock of Redis is {abs(ahead_seconds) / 60:.0f} min {way} that of this machine: "
        "changes have their times from it. Set both right (NTP)"
    )
