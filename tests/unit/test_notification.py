"""What a notification says, and how much of it goes into one."""

import pytest

from rsnotify.errors import Rejected
from rsnotify.journal.submission import fragment_of
from rsnotify.resourcesync.change import Change, Position
from rsnotify.resourcesync.document_rules import check
from rsnotify.resourcesync.notification import (
    NOTIFICATION_BYTES,
    ChannelName,
    Row,
    first_batch,
    render_notification,
)

T0 = Position.parse("2026-11-20T21:34:00Z")
CHANGES, FRAMEWORK = ChannelName("dataset1", "change"), ChannelName("dataset1", "framework")


def rows(*changes: Change) -> list[Row]:
    return [(Position(T0 + 1 + at), fragment_of(each).xml) for at, each in enumerate(changes)]


def test_it_is_a_valid_change_notification_of_both_specifications():
    change = Change("http://example.com/res1", "deleted")
    made = render_notification(CHANGES, T0, rows(change), base_url="http://hub")
    assert check(made.payload) == []
    assert made.payload.decode() == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
        'xmlns:rs="http://www.openarchives.org/rs/terms/">'
        '<rs:ln rel="up" href="http://hub/dataset1/capabilitylist.xml"/>'
        '<rs:md capability="change-notification" from="2026-11-20T21:34:00.000000Z" '
        'until="2026-11-20T21:34:00.000001Z"/>'
        "<url><loc>http://example.com/res1</loc><lastmod>2026-11-20T21:34:00.000001Z</lastmod>"
        '<rs:md change="deleted" datetime="2026-11-20T21:34:00.000001Z"/></url></urlset>\n'
    )


def test_its_entries_can_be_cut_out_for_other_documents():
    made = render_notification(
        CHANGES, T0, rows(Change("http://example.com/a", "created")), base_url="http://hub"
    )
    entries = made.payload[made.entries]
    assert entries.startswith(b"<url>")
    assert entries.endswith(b"</url>")


@pytest.mark.parametrize(
    ("capability", "up"),
    [
        ("resourcelist", "http://hub/dataset1/capabilitylist.xml"),
        ("capabilitylist", "http://hub/.well-known/resourcesync"),
    ],
)
def test_a_framework_notification_names_what_is_above_the_document(capability, up):
    change = Change("http://example.com/list.xml", "created", capability=capability)
    made = render_notification(FRAMEWORK, T0, rows(change), base_url="http://hub")
    assert check(made.payload) == []
    assert f'rel="up" href="{up}"'.encode() in made.payload


def sized(*sizes: int) -> list[Row]:
    return [(Position(at), b"x" * size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("row_sizes", "taken"),
    [
        ([10] * 3, 3),
        ([10] * 1_500, 1_000),
        ([NOTIFICATION_BYTES, 10], 1),
        ([NOTIFICATION_BYTES + 1, 10], 1),
        ([NOTIFICATION_BYTES // 2] * 3, 2),
    ],
)
def test_it_carries_a_thousand_changes_and_512_kib_at_most(row_sizes, taken):
    assert len(first_batch(sized(*row_sizes))) == taken


def test_a_rendering_for_one_way_out_is_made_once():
    made = render_notification(
        CHANGES, T0, rows(Change("http://example.com/a", "created")), base_url="http://hub"
    )
    assert made.derived("frame", lambda _: object()) is made.derived("frame", lambda _: object())


def test_a_channel_is_named_by_its_set_and_kind():
    assert ChannelName.named("a", "framework") == ChannelName("a", "framework")
    with pytest.raises(Rejected) as refused:
        ChannelName.named("a", "other")
    assert (refused.value.status, refused.value.close_code) == (404, 4404)
