"""What changed between two lists."""

import gc
import gzip
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rsnotify.errors import Rejected
from rsnotify.resourcesync.change import Link
from rsnotify_client import changes_between
from rsnotify_client.between import entries_of

HEAD = (
    '<{0} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" '
    'xmlns:rs="http://www.openarchives.org/rs/terms/" xmlns:x="http://x">{1}</{0}>'
)
MD5 = "md5:1584abdf8ebdc9802ac0c6a7402c03b{}"


def url(name: str, lastmod: str = "", md: str = "", links: str = "") -> str:
    mod = f"<lastmod>{lastmod}</lastmod>" if lastmod else ""
    described = f"<rs:md {md}/>" if md else ""
    return f"<url><loc>http://example.com/{name}</loc>{mod}{described}{links}</url>"


class Lists:
    """Two lists in files."""

    def __init__(self, folder: Path) -> None:
        self.old, self.new = folder / "old.xml", folder / "new.xml"
        self.folder = folder

    def between(self, old: str, new: str) -> list[tuple[str, str]]:
        self.old.write_text(HEAD.format("urlset", old))
        self.new.write_text(HEAD.format("urlset", new))
        return self.changes()

    def changes(self) -> list[tuple[str, str]]:
        return told(self.old, self.new)


def told(old: Path | str, new: Path | str, max_delete: float = 100) -> list[tuple[str, str]]:
    changes = changes_between(old, new, max_delete=max_delete)
    return [(each.change, each.loc.rpartition("/")[2]) for each in changes]


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return Lists(tmp_path)


def test_what_is_new_changed_or_gone_is_told_and_nothing_else(lists):
    assert lists.between(
        url("gone") + url("same", "2026-11-20") + url("changed", "2026-11-20"),
        url("new") + url("changed", "2026-11-21") + url("same", "2026-11-20"),
    ) == [("updated", "changed"), ("deleted", "gone"), ("created", "new")]


@pytest.mark.parametrize(
    ("old", "new", "has_changed"),
    [
        (url("a", "2026-11-20"), url("a", "2026-11-21"), True),
        (url("a", "2026-11-20T10:00:00Z"), url("a", "2026-11-20T11:00:00.000+01:00"), False),
        (url("a", md='length="1"'), url("a", md='length="2"'), True),
        (url("a"), url("a", "2026-11-21"), False),
        (url("a", md=f'hash="{MD5.format(1)}"'), url("a", md=f'hash="{MD5.format(2)}"'), True),
        (
            url("a", "2026-11-20", f'hash="{MD5.format(1)}"'),
            url("a", "2026-11-21", f'hash="{MD5.format(1)} sha-1:{"0" * 40}"'),
            False,
        ),
    ],
)
def test_the_hash_decides_else_the_time_and_the_length(lists, old, new, has_changed):
    assert lists.between(old, new) == ([("updated", "a")] if has_changed else [])


def test_a_created_resource_is_told_with_all_that_the_list_says(lists):
    link = '<rs:ln rel="duplicate" href="http://mirror.com/a" pri="1" x:y="z"/>'
    md = f'hash="{MD5.format(1)}" length="8876" type="text/html"'
    lists.between(url("b"), url("b"))
    lists.new.write_text(HEAD.format("urlset", url("a", "2026-11-20", md, link)))
    (created, _) = changes_between(lists.old, lists.new, max_delete=100)
    assert (created.hash, created.length, created.type) == (MD5.format(1), 8876, "text/html")
    assert created.links == (Link("duplicate", "http://mirror.com/a", pri=1),)
    assert created.lastmod == "2026-11-20"


def test_an_address_that_stands_twice_counts_once(lists):
    assert lists.between(url("a") * 2, url("a") * 2 + url("b") * 2) == [("created", "b")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD.format("urlset", url("a"))[:-3], "not well-formed"),
        (HEAD.format("urlset", "<url><loc>http://a.org/</loc><rs:md><x/></rs:md><loc/>"), "new"),
        (HEAD.format("urlset", ""), "would delete 2 of 2 resources, which is more than 10 %"),
        (gzip.compress(b"<urlset>", mtime=0)[:-9], "it is no whole gzip: it breaks off"),
        ("<!DOCTYPE urlset>" + HEAD.format("urlset", url("a")), "DOCTYPE"),
        ("", "new.xml: not well-formed"),
    ],
)
def test_a_list_that_is_broken_or_suddenly_empty_deletes_nothing(lists, content, message):
    lists.between(url("a") + url("b"), url("a"))
    lists.new.write_bytes(content if isinstance(content, bytes) else content.encode())
    changes = changes_between(lists.old, lists.new)
    with pytest.raises(Rejected, match=message):
        next(changes)


@pytest.mark.parametrize(
    ("gone", "max_delete"), [(1, 10), (2, 10), (0, 0), (1, 0), (10, 99), (10, 100)]
)
def test_a_list_that_may_be_cut_short_deletes_nothing_unless_it_is_said_to_be_meant(
    lists, gone, max_delete
):
    """Of ten; an address that stands twice counts once, and what is new does not count."""
    lists.old.write_text(HEAD.format("urlset", "".join(map(url, "aabcdefghij"))))
    lists.new.write_text(HEAD.format("urlset", "".join(map(url, "abcdefghij"[gone:])) + url("k")))
    if 10 * gone <= max_delete:
        deleted = [("deleted", name) for name in "abcdefghij"[:gone]]
        assert told(lists.old, lists.new, max_delete) == [*deleted, ("created", "k")]
    else:
        words = f"would delete {gone} of 10 resources, which is more than {max_delete} %"
        with pytest.raises(Rejected, match=words) as refused:
            told(lists.old, lists.new, max_delete)
        allowed = int(refused.value.detail.removesuffix(")").rpartition(" ")[2])
        assert told(lists.old, lists.new, allowed)


def test_an_empty_list_deletes_all_if_that_is_said_to_be_meant(lists):
    lists.old.write_text(HEAD.format("urlset", url("a") + url("b")))
    lists.new.write_text(HEAD.format("urlset", ""))
    assert told(lists.old, lists.new, 100) == [("deleted", "a"), ("deleted", "b")]
    with pytest.raises(Rejected, match="max_delete=100"):
        told(lists.old, lists.new, 99.9)


def test_a_list_has_an_end(lists):
    lists.between(url("a"), url("a"))
    place, size = str(lists.new), lists.new.stat().st_size
    assert [each.loc for each in entries_of(place, size)] == ["http://example.com/a"]
    with pytest.raises(Rejected, match=f"is longer than {size - 1} bytes"):
        list(entries_of(place, size - 1))


def test_a_file_that_is_not_there_is_named(lists):
    with pytest.raises(Rejected, match=r"cannot read .*old.xml: no such file or directory"):
        lists.changes()


def index(*locs: str) -> str:
    return HEAD.format(
        "sitemapindex", "".join(f"<sitemap><loc>{loc}</loc></sitemap>" for loc in locs)
    )


@pytest.fixture
def nights(tmp_path: Path) -> Path:
    """Two nights' indexes, each with its parts beside it, one of them compressed."""
    for night, names in (("old", "abc"), ("new", "bcd")):
        folder = tmp_path / night
        folder.mkdir()
        parts = ("http://example.com/maps/1.xml", "http://example.com/maps/2.xml.gz")
        (folder / "sitemap.xml").write_text(index(*parts))
        (folder / "1.xml").write_text(HEAD.format("urlset", url(names[0])))
        rest = HEAD.format("urlset", url(names[1]) + url(names[2]))
        (folder / "2.xml.gz").write_bytes(gzip.compress(rest.encode()))
    return tmp_path


def test_the_parts_of_an_index_on_disk_lie_beside_it(nights):
    changes = told(nights / "old/sitemap.xml", nights / "new/sitemap.xml")
    assert changes == [("deleted", "a"), ("created", "d")]


def test_a_part_that_is_not_there_is_an_error_and_no_delete(nights):
    (nights / "new/1.xml").unlink()
    with pytest.raises(Rejected, match="keep a list with its parts"):
        told(nights / "old/sitemap.xml", nights / "new/sitemap.xml")


def test_indexes_under_an_index_are_read_and_no_index_of_itself(nights):
    sitemap, part = nights / "new/sitemap.xml", nights / "new/1.xml"
    part.rename(nights / "new/3.xml")
    part.write_text(index("http://example.com/maps/3.xml"))
    assert told(nights / "old/sitemap.xml", sitemap) == [("deleted", "a"), ("created", "d")]
    part.write_text(index("http://example.com/maps/sitemap.xml"))
    with pytest.raises(Rejected, match="it is an index under an index of itself"):
        told(nights / "old/sitemap.xml", sitemap)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(nights: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(nights)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_lists_are_fetched_and_so_are_the_parts_of_an_index(nights, served):
    for night in ("old", "new"):
        parts = (f"{served}/{night}/1.xml", "2.xml.gz")
        (nights / night / "sitemap.xml").write_text(index(*parts))
    changes = told(f"{served}/old/sitemap.xml", f"{served}/new/sitemap.xml")
    assert changes == [("deleted", "a"), ("created", "d")]


def test_an_address_with_nothing_behind_it_is_named(nights, served):
    with pytest.raises(Rejected, match=r"cannot read http.*/none.xml"):
        told(nights / "old/sitemap.xml", f"{served}/none.xml")
    gc.collect()  # a socket that was left open is an error now
