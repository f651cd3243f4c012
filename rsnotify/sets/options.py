"""What a set is besides its changes: its name, the options of its operator, when it was made."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from rsnotify.errors import Rejected
from rsnotify.resourcesync.notification import KINDS, ChannelName, Kind, wrong_name

IiifType = Literal["Manifest", "Collection"]
"""What the resources of a set may be to IIIF."""

LEAST_BYTES = 1024 * 1024  # of `max_bytes`
TITLE_CHARACTERS = 200
MOST_BYTES = 2**50  # of `max_bytes`: scripts count exactly up to 2^53


class SetOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the operator may choose for a set."""

    private: bool = False  # reading needs a token
    title: str | None = None  # what people call it; else its name
    license: str | None = None  # the address of what its resources may be used by
    describedby: str | None = None  # a document that describes the set, instead of the hub's
    # The Source's own documents, which the Capability List names instead of the hub's.
    resourcelist: str | None = None
    resourcedump: str | None = None
    changelist: str | None = None
    changedump: str | None = None
    resourcelist_archive: str | None = None
    resourcedump_archive: str | None = None
    changelist_archive: str | None = None
    changedump_archive: str | None = None
    # Names of the hub's channels as WebSub topics, at the Source.
    topic: str | None = None
    framework_topic: str | None = None
    # Channels of the Source elsewhere, and their WebSub hub.
    change_notification: str | None = None
    framework_notification: str | None = None
    channel_hub: str | None = None
    sockets_first: bool = False  # for Destinations that know version 0.8 only
    max_bytes: int | None = None  # that it may take of Redis; else half of what Redis may use
    iiif: IiifType | None = None  # what its resources are to IIIF, if anything
    atom: bool = True  # whether its changes can be read as a feed
    filters: bool = False  # whether its readers may ask for types and collections
    tombstones: bool = False  # whether its deletions are kept beyond the changes, for harvesters
    oai: bool = True  # whether it can be harvested by OAI-PMH, if the hub has an admin's email

    @property
    def own_documents(self) -> dict[str, str]:
        """The addresses of the Source's own documents, by capability."""
        named = {name.replace("_", "-"): getattr(self, name) for name in DOCUMENTS}
        return {name: loc for name, loc in named.items() if loc is not None}

    def own_topic(self, kind: Kind) -> str | None:
        """What the Source calls this channel; None if only the hub has a name for it."""
        return self.topic if kind == "change" else self.framework_topic

    def own_channel(self, kind: Kind) -> str | None:
        """The Source's channel elsewhere, if it has one."""
        return self.change_notification if kind == "change" else self.framework_notification


TOPICS = ("topic", "framework_topic")
DOCUMENTS = (
    "resourcelist",
    "resourcedump",
    "changelist",
    "changedump",
    "resourcelist_archive",
    "resourcedump_archive",
    "changelist_archive",
    "changedump_archive",
)
CHANNEL_OPTIONS = ("change_notification", "framework_notification")
ADDRESSES = ("describedby", "license", *DOCUMENTS, *TOPICS, *CHANNEL_OPTIONS, "channel_hub")
"""The options that are addresses."""


class SetRecord(SetOptions, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What the hub knows of a set besides its journals."""

    name: str
    created: str
    edited: str = ""  # when its options were chosen, by the clock of Redis

    @property
    def age(self) -> tuple[str, str]:
        """Of two records of a set, the newer one has the greater one."""
        return self.created, self.edited


def channel_of_own_topic(records: Iterable[SetRecord], topic: str) -> ChannelName | None:
    """The channel that a Source calls by this topic."""
    for record in records:
        for kind in KINDS:
            if record.own_topic(kind) == topic:
                return ChannelName(record.name, kind)
    return None


def check_name(name: str) -> None:
    if (wrong := wrong_name(name)) is not None:
        raise Rejected(wrong)


def check_together(options: SetOptions) -> None:
    """Refuse options that each may be right, but not with each other."""
    if options.topic is not None and options.topic == options.framework_topic:
        raise Rejected("topic and framework_topic are the same: the channels must differ")
    if options.max_bytes is not None and not LEAST_BYTES <= options.max_bytes <= MOST_BYTES:
        raise Rejected(f"max_bytes must be from {LEAST_BYTES:,} to {MOST_BYTES:,}")
    if options.title is not None and not 0 < len(options.title) <= TITLE_CHARACTERS:
        raise Rejected(f"title must have 1 to {TITLE_CHARACTERS} characters")
    for name in CHANNEL_OPTIONS:
        channel = getattr(options, name) or ""
        if channel.startswith("http") and options.channel_hub is None:
            raise Rejected(f"{name} is a WebSub topic: name its hub in channel_hub")
