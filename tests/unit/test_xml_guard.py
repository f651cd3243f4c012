"""What is refused of an XML document before a parser sees it."""

import codecs

import pytest

from rsnotify.errors import Rejected
from rsnotify.publishing.bodies import read_submission
from rsnotify.resourcesync.document_rules import check
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_structure import MARKUP, TAG_BYTES, check_before_parsing
from rsnotify.resourcesync.xml_writer import RS_NS, SITEMAP_NS

CHANGE = '<url><loc>http://e.org/a</loc><rs:md change="updated"/></url>'
DOCUMENT = f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">{CHANGE}</urlset>'
ASCII = ("utf-8", "UTF-8", "us-ascii", "ASCII")
OTHERS = (
    *("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-7"),
    *("cp037", "cp500", "cp1140", "latin-1", "cp1252", "shift_jis", "iso2022_jp", "hz", "gb18030"),
)


def refusal(data: bytes) -> Rejected:
    with pytest.raises(Rejected) as refused:
        check_before_parsing(data)
    return refused.value


def declared(encoding: str, document: str = DOCUMENT) -> str:
    return f"<?xml version='1.0' encoding=\"{encoding}\"?>{document}"


# Encodings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ASCII)
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_utf_8_is_read_with_and_without_its_mark(encoding, mark):
    for text in (DOCUMENT, declared(encoding)):
        assert parse_document(mark + text.encode()).entries[0].loc == "http://e.org/a"


@pytest.mark.parametrize("encoding", OTHERS)
def test_another_encoding_that_is_declared_is_refused_by_name(encoding):
    refused = refusal(declared(encoding).encode(encoding))
    assert refused.status == 400
    assert refused.detail.endswith("send it in UTF-8, no other encoding is accepted")


@pytest.mark.parametrize("encoding", OTHERS[:6])
def test_another_encoding_that_only_shows_is_refused_by_name(encoding):
    assert f"is in {encoding[:6].upper()}:" in refusal(DOCUMENT.encode(encoding)).detail


def test_bytes_that_are_no_utf_8_are_named_by_their_place():
    assert "(byte 3 is not UTF-8)" in refusal("<a>é</a>".encode("latin-1")).detail


def test_the_parser_reads_what_was_judged_whatever_the_document_declares():
    data = declared("us-ascii", DOCUMENT.replace("/a<", "/é<")).encode()
    assert parse_document(data).entries[0].loc == "http://e.org/é"


def test_attributes_that_look_like_tags_in_utf_16_are_refused_wherever_xml_comes_in():
    attributes = " ".join(f'\u3c3c{number}=""' for number in range(60_000))
    data = DOCUMENT.replace("<rs:md", f"<rs:md {attributes}").encode("utf-16")
    for media_type in ("application/xml", "text/xml"):
        with pytest.raises(Rejected, match="UTF-16"):
            read_submission("change", data, media_type, None)
    assert "UTF-16" in check(data)[0].message  # as `rsnotify validate` does


# Caps ------------------------------------------------------------------------------------------


def test_a_tag_takes_8192_bytes():
    check_before_parsing(b"<" + b"a" * (TAG_BYTES - 1) + b"<")
    assert "is longer than 8192 bytes" in refusal(b"<" + b"a" * TAG_BYTES).detail


@pytest.mark.parametrize(("what", "markup"), [("tags", b"<"), ("attributes", b"='")])
def test_a_document_has_a_million_tags_and_attributes(what, markup):
    check_before_parsing(markup * MARKUP)
    refused = refusal(markup * (MARKUP + 1))
    assert (refused.status, f"more than 1000000 {what}" in refused.detail) == (413, True)


def test_a_large_document_has_one_of_either_in_16_bytes():
    tag = b"<a b = '1234567>"
    check_before_parsing(tag * (MARKUP + 1))
    assert refusal(tag * (MARKUP + 1) + b"<<").status == 413
    assert refusal(tag * (MARKUP + 1) + b"=''='").status == 413


@pytest.mark.parametrize("tag", ["<!DOCTYPE urlset>", "<!DOCTYPE u [<!ATTLIST a b CDATA ''>]>"])
def test_a_doctype_is_refused_before_it_is_read(tag):
    assert "a DOCTYPE is not accepted" in refusal(f"{tag}{DOCUMENT}".encode()).detail
    assert "a DOCTYPE is not accepted" in refusal(declared("utf-8", tag).encode()).detail
