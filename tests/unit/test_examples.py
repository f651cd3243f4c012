"""The specifications' own example documents."""

from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from rsnotify.resourcesync.document_rules import check
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import render_document

SPECIFICATION = Path(__file__).parents[1] / "specification"
EXAMPLES = sorted((SPECIFICATION / "examples").glob("*.xml"))

# The walkthrough of the core leaves the mandatory link to the Capability List out, for brevity.
WALKTHROUGH = {f"core_1.1_html_ex_0{number}.xml" for number in (1, 2, 3, 4, 5, 8)}


def schema(root: str) -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(SPECIFICATION / "schemas" / f"wrapper-{root}.xsd"))


def each_example(test: Any) -> Any:
    return pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)(test)


def test_the_examples_of_all_specifications_are_here():
    assert len(EXAMPLES) == 46
    of = {path.name.partition("_")[0] for path in EXAMPLES}
    assert of == {"archives", "change", "core", "framework", "notification"}


@each_example
def test_an_example_keeps_the_rules(example):
    broken = [violation.message for violation in check(example.read_bytes())]
    assert broken == (["up is missing"] if example.name in WALKTHROUGH else [])


@each_example
def test_an_example_written_again_is_valid_by_the_schema(example):
    document = parse_document(example.read_bytes())
    schema(document.root).assertValid(etree.fromstring(render_document(document)))


@each_example
def test_an_example_written_again_reads_the_same(example):
    document = parse_document(example.read_bytes())
    assert parse_document(render_document(document)) == document


@each_example
def test_an_example_written_again_has_the_same_elements(example):
    original = etree.fromstring(example.read_bytes())
    again = etree.fromstring(render_document(parse_document(example.read_bytes())))
    assert sorted(map(described, again.iter())) == sorted(map(described, original.iter()))


def described(element: etree._Element) -> tuple[str, str, list[Any]]:
    return str(element.tag), (element.text or "").strip(), sorted(element.attrib.items())
