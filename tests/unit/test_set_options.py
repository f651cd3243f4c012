"""Options of a set that need each other, and the channel that a Source names itself."""

import pytest

from rsnotify.documents.documents import source_description
from rsnotify.errors import Rejected
from rsnotify.resourcesync.notification import ChannelName
from rsnotify.sets.options import (
    TITLE_CHARACTERS,
    SetOptions,
    SetRecord,
    channel_of_own_topic,
    check_together,
)

OWN, OTHER = "http://source.example/changes", "http://source.example/lists"


def test_a_topic_of_the_sources_own_names_its_channel():
    records = [
        SetRecord(name="a", created=""),
        SetRecord(name="b", created="", topic=OWN, framework_topic=OTHER),
    ]
    assert channel_of_own_topic(records, OWN) == ChannelName("b", "change")
    assert channel_of_own_topic(records, OTHER) == ChannelName("b", "framework")
    assert channel_of_own_topic(records, OWN + "/") is None


@pytest.mark.parametrize(
    ("options", "detail"),
    [
        ({"topic": OWN, "framework_topic": OWN}, "the channels must differ"),
        ({"title": ""}, "1 to 200 characters"),
        ({"title": "x" * (TITLE_CHARACTERS + 1)}, "1 to 200 characters"),
        ({"change_notification": OWN}, "name its hub in channel_hub"),
        ({"framework_notification": OWN}, "name its hub in channel_hub"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, detail):
    with pytest.raises(Rejected, match=detail):
        check_together(SetOptions(**options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"title": "x" * TITLE_CHARACTERS},
        {"topic": OWN, "framework_topic": OTHER},
        {"change_notification": OWN, "channel_hub": "http://hub.example/"},
        {"change_notification": "wss://hub.example/"},
    ],
)
def test_options_that_fit_together_are_taken(options):
    check_together(SetOptions(**options))


def test_a_set_is_found_by_the_capability_list_that_it_names_first():
    sets = [
        SetRecord(name="a", created="", edited=""),
        SetRecord(name="b", created="", edited="", sockets_first=True),
    ]
    entries = source_description("http://h", sets, None).entries
    assert [(entry.loc, [link.href for link in entry.links]) for entry in entries] == [
        ("http://h/a/capabilitylist.xml", []),
        ("http://h/b/capabilitylist-ws.xml", ["http://h/b/capabilitylist.xml"]),
    ]
