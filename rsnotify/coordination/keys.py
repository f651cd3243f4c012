"""The names of everything the hub keeps in Redis. All keys of a set share one Cluster slot."""

from zlib import crc32

from rsnotify.resourcesync.notification import ChannelName

BELL = "rsnotify:bell"  # pub/sub: "<set>/<kind> <caller>:<mark> <head>", or "sets"
REPORTS_BELL = "rsnotify:reports"  # pub/sub: the report of each hub process
DATA_ID = "rsnotify:data"  # chosen by chance for an empty Redis: another one means other data
SETS = "rsnotify:sets"  # hash: name -> record of the set
SETS_VERSION = "rsnotify:sets:version"
SETS_FORMER = "rsnotify:sets:former"  # hash: name -> when the first set of this name began
SETS_CHANGED = "rsnotify:sets:changed"  # when that was, by the clock of Redis
SETS_ANNOUNCED = "rsnotify:sets:told"  # hash: the Source Description announced last
LOADS = "rsnotify:loads"  # hash: sets whose whole state is being loaded -> token of the load
CLOCK_HISTORY = "rsnotify:watched"  # see rsnotify.coordination.clock
WRITABLE = "rsnotify:writable"  # written to see whether Redis takes writes
TOKENS_USED = "rsnotify:tokens:used"  # hash: id of a token -> when it was used last
TOKENS = "rsnotify:tokens"  # hash: SHA-256 of a token -> what it may do

STATE_SHARDS = 256
OF_LOADS = ("newer", "last", "moment", "since", "settled", "older")
"""What `load` names besides the load itself: see loads.lua."""


def of_set(set_name: str, *parts: str) -> str:
    return ":".join((f"rsnotify:{{{set_name}}}", *parts))


def writable(tag: str) -> str:
    """As `WRITABLE`, at the node of a Cluster that has this tag."""
    return of_set(tag, "writable")


def stream(channel: ChannelName) -> str:
    return of_set(channel.set_name, channel.kind)


def record(channel: ChannelName) -> str:
    return of_set(channel.set_name, channel.kind, "record")


def windows(channel: ChannelName) -> str:
    return of_set(channel.set_name, channel.kind, "windows")


def packed(channel: ChannelName, from_: int | None = None) -> str:
    """The compressed entries of the window that begins here; else what their names begin with."""
    begins = "" if from_ is None else str(int(from_))
    return of_set(channel.set_name, channel.kind, "packed", begins)


def snapshot(set_name: str, name: str = "") -> str:
    """Hash: what is known of the set's newest snapshot, or of the one of that name."""
    return of_set(set_name, "snapshot", name)


def snapshot_part(set_name: str, name: str, number: int) -> str:
    return of_set(set_name, "snapshot", name, str(number))


def archive(set_name: str) -> str:
    """Sorted set: names of the replaced snapshots that are kept."""
    return of_set(set_name, "archive")


def never(set_name: str) -> str:
    """Never written: where a script names it, a Cluster that moves the set does not begin it."""
    return of_set(set_name, "never")


def claim(set_name: str, act: str) -> str:
    """Held by the one hub process that does this act for the set."""
    return of_set(set_name, "claim", act)


def state(set_name: str, shard: int | None = None) -> str:
    """One of the hashes of a set's current state; without a shard, what their names begin with."""
    return of_set(set_name, "state", "" if shard is None else str(shard))


def shard_of(loc: bytes) -> int:
    """Which of these hashes has the resource with this escaped loc."""
    return crc32(loc) % STATE_SHARDS


def tombstones(set_name: str, shard: int) -> str:
    """Where each resource ended that was in this hash of the state, in a set that keeps that."""
    return f"{state(set_name, shard)}:tombstones"


def load(set_name: str, *parts: str) -> str:
    """Hash: the load of the set's whole state that is under way; with parts, what belongs to it."""
    return of_set(set_name, "load", *parts)


def staged(set_name: str, shard: int | None = None) -> str:
    """As `state`, of the state that a load has brought so far."""
    return load(set_name, "staged", "" if shard is None else str(shard))


def remembered(channel: ChannelName) -> str:
    """The beginning of each key that holds what is remembered of appends."""
    return of_set(channel.set_name, channel.kind, "key", "")


# --- subscriptions: all keys of a share are in one Cluster slot ----------------------------------

SUBSCRIPTIONS_BELL = "rsnotify:subscriptions:bell"  # pub/sub: the share that was asked something
DELIVERERS = "rsnotify:subscriptions:beats"  # hash: hub process -> its last sign of life


def of_share(share: int, *parts: str) -> str:
    return ":".join((f"rsnotify:{{subscriptions-{share}}}", *parts))


def counted(of: str, name: str) -> str:
    """Sorted set of the subscriptions that count for this callback host, or this client address."""
    return f"rsnotify:subscriptions:of-{of}:{name}"


def pending_of(address: str) -> str:
    """Sorted set of the requests that this client address has pending."""
    return f"rsnotify:subscriptions:pending:{address}"
