"""Positions: datetimes, stream ids and numbers are one thing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsnotify.resourcesync.change import Position

MOMENTS = st.integers(min_value=0, max_value=4_000_000_000_000_000).map(Position)


@given(MOMENTS)
def test_a_position_survives_its_text(position):
    assert Position.parse(str(position)) == position


@given(MOMENTS)
def test_a_stream_id_is_the_position_in_milliseconds_and_microseconds(position):
    milliseconds, microseconds = map(int, position.stream_id.split("-"))
    assert microseconds < 1000
    assert milliseconds * 1000 + microseconds == position


@given(MOMENTS, MOMENTS)
def test_texts_sort_like_positions(one, other):
    assert (str(one) < str(other)) == (one < other)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-11-20T21:34:00.123456Z", "2026-11-20T21:34:00.123456Z"),
        ("2026-11-20T21:34:00Z", "2026-11-20T21:34:00.000000Z"),
        ("2026-11-20T21:34Z", "2026-11-20T21:34:00.000000Z"),
        ("2026-11-20T21:34:00.5Z", "2026-11-20T21:34:00.500000Z"),
        ("2026-11-20T21:34:00.1234569Z", "2026-11-20T21:34:00.123456Z"),
        ("2026-11-20T22:34:00+01:00", "2026-11-20T21:34:00.000000Z"),
        ("2026-11-20T20:04:00-01:30", "2026-11-20T21:34:00.000000Z"),
    ],
)
def test_every_full_w3c_datetime_is_a_position(text, meant):
    assert str(Position.parse(text)) == meant


@pytest.mark.parametrize(
    "text",
    ["", "2026", "2026-11-20", "2026-11-20T21:34:00", "2026-13-20T21:34:00Z", "now", "٢٠٢٦-11-20"],
)
def test_anything_else_is_none(text):
    with pytest.raises(ValueError, match=r"datetime|month"):
        Position.parse(text)


@pytest.mark.parametrize("text", ["0001-01-02T00:00:00Z", "0113-11-20T00:00:00Z"])
def test_a_year_has_four_digits(text):
    position = Position.parse(text)
    assert Position.parse(str(position)) == position
