"""Which keys a command has, and which of the 16,384 slots they are in.

The keys of a set have its name as their tag, and those of a share of subscriptions its number. All
others get the tag `{hub}`, which no set can have: so the registry is in one slot, and one server
alone keeps the names that it always had.
"""

from collections.abc import Sequence
from typing import NamedTuple

from redis.crc import key_slot

from rsnotify.redis_client.replicas import WAITED
from rsnotify.redis_client.script import Command, in_words

SLOTS = 16_384
TAG = "rsnotify:{hub}:"
REGISTRY = TAG + "sets"

_WITHOUT = {"PING", "HELLO", "TIME", "INFO", "CONFIG", "PUBLISH", "PUBSUB", "CLUSTER"}
_ALL = {"MGET", "DEL", "UNLINK", "EXISTS"}
_SCRIPTS = {"EVAL", "EVALSHA"}


class Routed(NamedTuple):
    """A command, and the slot of its keys."""

    command: Command
    slot: int
    key: str


def slot_of(key: str) -> int:
    return key_slot(key.encode())


REGISTRY_SLOT = slot_of(REGISTRY)


def tagged(key: str) -> str:
    """The key as it is called in a Cluster."""
    return key if "{" in key else key.replace("rsnotify:", TAG, 1)


def waited_in(key: str) -> str:
    """A key in the same slot, written so that its replicas can be waited for."""
    begin = key.find("{")
    tag = key[begin : key.find("}", begin) + 1]
    return f"rsnotify:{tag}:{WAITED.rpartition(':')[2]}"


def placed(command: Command) -> tuple[Command, str]:
    """The command as a Cluster wants it, and one of its keys; that of the registry if it has none.

    All its keys must be in one slot, or it is a mistake in the hub.
    """
    words = in_words(command)
    at = _keys_at(words)
    if not at:
        return words, REGISTRY
    names = [tagged(_text(words[place])) for place in at]
    if len({slot_of(name) for name in names}) != 1:
        raise ValueError(f"keys of several slots in one {words[0]}: {', '.join(names[:5])}")
    return (*words[: at.start], *names, *words[at.stop :]), names[0]


def routed_to(command: Command) -> Routed:
    command, key = placed(command)
    return Routed(command, slot_of(key), key)


def _keys_at(words: Sequence[object]) -> range:
    name = words[0]
    if name in _WITHOUT:
        return range(0)
    if name in _SCRIPTS:
        return range(3, 3 + int(str(words[2])))
    return range(1, len(words) if name in _ALL else 2)


def _text(key: object) -> str:
    return key.decode() if isinstance(key, bytes) else str(key)
