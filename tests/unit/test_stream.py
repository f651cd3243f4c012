"""Documents read as they come: whole, broken, hostile and endless ones."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from rsnotify.errors import Rejected
from rsnotify.resourcesync.stream import SKIPPED_NAMED, DocumentStream
from rsnotify.resourcesync.xml_structure import TAG_BYTES
from rsnotify.resourcesync.xml_writer import DRAFT_NS, RS_NS, SITEMAP_NS

HEAD = (
    f'<urlset xmlns="{SITEMAP_NS}" xmlns:rs="{RS_NS}">'
    '<rs:md capability="resourcelist" at="2026-11-20T00:00:00Z"/>'
)
ENTRY = "<url><loc>http://example.com/{}</loc></url>"
END = "</urlset>"


def read(text: str | bytes, size: int = 1 << 20) -> tuple[DocumentStream, list[str]]:
    data = text.encode() if isinstance(text, str) else text
    stream = DocumentStream()
    found = [
        entry.loc
        for start in range(0, len(data), size)
        for entry in stream.feed(data[start : start + size])
    ]
    return stream, found + [entry.loc for entry in stream.close()]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_entries_come_as_they_are_complete_whatever_the_pieces(size):
    stream, found = read(HEAD + ENTRY.format("a") + ENTRY.format("b") + END, size)
    assert found == ["http://example.com/a", "http://example.com/b"]
    assert stream.head.md.at == "2026-11-20T00:00:00Z"


@pytest.mark.parametrize("end", [lambda stream: stream.feed(END.encode()), DocumentStream.close])
def test_a_second_thread_may_not_feed_a_document(end):
    stream = DocumentStream()
    stream.feed(HEAD.encode())
    with ThreadPoolExecutor(1) as other, pytest.raises(RuntimeError, match="one thread"):
        other.submit(end, stream).result()


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_another_encoding_is_refused_whatever_the_pieces(size):
    with pytest.raises(Rejected, match="the encoding latin-1 is not read"):
        read('<?xml version="1.0" encoding="latin-1"?>' + HEAD + END, size)


@pytest.mark.parametrize("text", ["", "<", "<urlset", " " * 300])
def test_what_ends_before_its_first_tag_is_no_document(text):
    with pytest.raises(Rejected, match="not well-formed"):
        read(text, 1)


def test_a_document_without_entries_has_a_head():
    stream, found = read(HEAD + END)
    assert (found, stream.head.md.capability) == ([], "resourcelist")


def test_an_entry_that_cannot_be_read_is_skipped_and_named_and_the_rest_goes_on():
    bad = "<url><loc>http://example.com/a</loc><loc>http://example.com/b</loc></url>"
    stream, found = read(HEAD + ENTRY.format("a") + bad + ENTRY.format("c") + END)
    assert found == ["http://example.com/a", "http://example.com/c"]
    assert stream.skipped == ["entry 2: <loc> (line 1) occurs twice: keep one"]


def test_so_many_skipped_entries_are_named_and_all_are_counted():
    bad = "<url><loc/><loc/></url>"
    stream, _ = read(HEAD + bad * (SKIPPED_NAMED + 1) + END)
    assert (len(stream.skipped), stream.skipped_count) == (SKIPPED_NAMED, SKIPPED_NAMED + 1)


HOSTILE = {
    "truncated": HEAD + ENTRY.format("a"),
    "no XML": "hello",
    "a DOCTYPE": '<!DOCTYPE a [<!ENTITY x "y">]>' + HEAD + ENTRY.format("&x;") + END,
    "an entity bomb": "<!DOCTYPE a ["
    + "".join(f'<!ENTITY x{n + 1} "{f"&x{n};" * 10}">' for n in range(9))
    + "]>"
    + HEAD
    + ENTRY.format("&x9;")
    + END,
    "an external entity": '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    + HEAD
    + ENTRY.format("&x;")
    + END,
    "an endless tag": HEAD + "<url " + "a" * TAG_BYTES + "='b'/>" + END,
    "an endless text": HEAD + "<url><loc>" + "a" * (TAG_BYTES + 1) + "</loc></url>" + END,
    "an end of another element": HEAD + "</urls>" + " " * 300,
    "a NUL": HEAD + "\0" + END,
    "another root": "<html><url/></html>",
    "UTF-16": (HEAD + END).encode("utf-16"),
    "an encoding that hides tags": '<?xml version="1.0" encoding="UTF-7"?>' + HEAD + END,
}


@pytest.mark.parametrize("size", [100, 1 << 20])
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_broken_or_hostile_document_is_refused(text, size):
    with pytest.raises(Rejected):
        read(text, size)


def test_a_document_that_has_not_begun_has_no_head():
    stream = DocumentStream()
    assert not stream.has_head
    with pytest.raises(Rejected, match="has not begun"):
        _ = stream.head


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_prefix_that_is_not_declared_is_refused_whatever_the_pieces(size):
    with pytest.raises(Rejected, match="not well-formed"):
        read(HEAD + "<url><x:loc>http://example.com/a</x:loc></url>" + END, size)


LINKS = '<rs:ln rel="up" href="a"/><rs:ln rel="next" href="b"/>'


@pytest.mark.parametrize(
    ("relations", "target"), [(("next",), "b"), (("last", "up", "next"), "a"), (("last",), None)]
)
def test_the_first_relation_that_is_there_leads_on(relations, target):
    assert read(HEAD + LINKS + END)[0].head.link(*relations) == target


DRAFT = HEAD.replace(RS_NS, DRAFT_NS)


def test_changes_of_the_draft_may_stand_newest_first():
    times = ("2013-01-03", "2013-01-02T00:00:00Z", "soon")
    text = DRAFT.replace("resourcelist", "changelist")
    for time in times:
        text += f"<url><loc>{time}</loc><lastmod>{time}</lastmod></url>"
    assert read(text + END)[1] == ["soon", "2013-01-02T00:00:00Z", "2013-01-03"]


def test_a_list_of_the_draft_is_dated_by_when_it_was_modified():
    head = DRAFT.replace(" at=", " modified=")
    assert read(head + END)[0].head.md.at == "2026-11-20T00:00:00Z"


def test_only_entries_of_the_root_are_read():
    inner = f"<urls>{ENTRY.format('b')}</urls>"
    assert read(HEAD + ENTRY.format("a") + inner + END)[1] == ["http://example.com/a"]
