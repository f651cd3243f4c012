"""Pictures of figures: right in proportion, readable by everybody, and those of the last run."""

from xml.etree import ElementTree

import pytest

from tests.evidence.bench.pictures import (
    FOLDER,
    NAMES_WIDTH,
    NUMBERS_WIDTH,
    WIDTH,
    Chart,
    draw,
    read,
)

DRAWN = {"concepts"}  # by hand
SVG = "{http://www.w3.org/2000/svg}"
CHART = Chart(
    "Some <bars>", "a & b", {"1 reader": {"one": 100.0, "two": 50.0}, "2 readers": {"two": 0.0}}
)


@pytest.fixture
def picture() -> ElementTree.Element:
    return ElementTree.fromstring(draw(CHART))


def bars(picture: ElementTree.Element) -> list[float]:
    found = picture.findall(f"{SVG}rect[@rx]")
    return [float(each.attrib["width"]) for each in found]


def test_a_bar_is_as_long_as_its_number_and_the_longest_fills_the_room(picture):
    room = WIDTH - NAMES_WIDTH - NUMBERS_WIDTH
    assert bars(picture) == [room, room / 2, 1.0]


def test_who_cannot_see_it_is_told_every_figure(picture):
    named = picture.attrib["aria-labelledby"].split()
    title, description = (picture.find(f"*[@id='{name}']") for name in named)
    assert title is not None
    assert description is not None
    assert title.text == "Some <bars>"
    assert description.text == "a & b. 1 reader: one 100, two 50; 2 readers: two 0."


def test_one_name_has_one_colour_in_all_groups(picture):
    colours = [each.attrib["class"] for each in picture.findall(f"{SVG}rect[@rx]")]
    assert colours == ["c0", "c1", "c1"]


def test_it_has_colours_for_light_and_dark(picture):
    style = picture.find(f"{SVG}style")
    assert style is not None
    light, dark = (style.text or "").split("@media (prefers-color-scheme: dark)")
    for name in ("text", ".paper", ".c0", ".c1", ".c2", ".c3"):
        assert name in light
        assert name in dark


@pytest.mark.parametrize("figures", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_picture_of_the_docs_shows_its_figures(figures):
    assert figures.with_suffix(".svg").read_text() == draw(read(figures))


def test_there_is_no_picture_without_figures():
    of_figures = {each.stem for each in FOLDER.glob("*.svg")} - DRAWN
    assert of_figures == {each.stem for each in FOLDER.glob("*.json")}
