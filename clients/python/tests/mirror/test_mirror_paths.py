"""Whatever a URI says, a resource's place lies inside the copy, and no two share one."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsnotify_mirror.paths import (
    COMPONENT_BYTES,
    OURS,
    PATH_BYTES,
    PATH_FOLDERS,
    digest,
    key_of,
    place_of,
    settled,
)

X = "http://example.com/"

PLACES = [
    ("http://example.com/a/b.pdf", "example.com/a/b.pdf"),
    ("http://example.com", "example.com/index.html"),
    ("http://example.com/", "example.com/index.html"),
    ("http://example.com/a/", "example.com/a/index.html"),
    ("https://Example.COM:8443/a", "example.com:8443/a"),
    ("http://user:secret@example.com/a", "example.com/a"),
    (X + "a?b=c", "example.com/a%3Fb=c"),
    (X + "a/?b=/../c", "example.com/a/index.html%3Fb=%2F..%2Fc"),
    (X + "%C3%A9.txt", "example.com/é.txt"),
    (X + "%FF.txt", "example.com/%FF.txt"),
    (X + "a#fragment", "example.com/a"),
    # out of the directory
    (X + "../etc/passwd", "example.com/%2E%2E/etc/passwd"),
    (X + "%2e%2e/etc/passwd", "example.com/%2E%2E/etc/passwd"),
    (X + "%2E./%2e", "example.com/%2E%2E/%2E"),
    (X + "a/../../b", "example.com/a/%2E%2E/%2E%2E/b"),
    (X + "..%2f..%2fetc", "example.com/..%2F..%2Fetc"),
    (X + "%2fetc%2fpasswd", "example.com/%2Fetc%2Fpasswd"),
    (X + "/etc/passwd", "example.com/%2F/etc/passwd"),
    (X + "a//b", "example.com/a/%2F/b"),
    (X + "..\\..\\b", "example.com/..%5C..%5Cb"),
    (X + "%252e%252e/b", "example.com/%2e%2e/b"),
    (X + "a%00b", "example.com/a%00b"),
    (X + "a%0Ab", "example.com/a%0Ab"),
    (X + "%20", "example.com/%20"),
    (X + ".../b", "example.com/%2E%2E%2E/b"),
    ("http://../a", "%2E%2E/a"),
    ("http:///a", "~host/a"),
    ("file:///etc/passwd", "~host/etc/passwd"),
    ("urn:isbn:123", "~host/isbn:123"),
    # our own files
    ("http://.rsnotify.sqlite", "%2Ersnotify%2Esqlite/index.html"),
    (X + ".rsnotify-parts/a", "example.com/%2Ersnotify-parts/a"),
    (X + "%2ERSNotify.sqlite", "example.com/%2ERSNotify%2Esqlite"),
    (X + "a~12345678", "example.com/a%7E12345678"),
    (X + "a~12345678.txt", "example.com/a%7E12345678.txt"),
    (X + "a~dir/b", "example.com/a%7Edir/b"),
    (X + "~user/b", "example.com/~user/b"),
]


@pytest.mark.parametrize(("loc", "place"), PLACES)
def test_a_resource_has_its_place(loc, place):
    assert place_of(loc) == place


def is_inside(path: str) -> bool:
    parts = path.split("/")
    return (
        posixpath.normpath(path) == path
        and not path.startswith("/")
        and "\0" not in path
        and not {"", ".", ".."} & set(parts)
        and not key_of(parts[0]).startswith(OURS)
        and all(len(part.encode()) <= 255 for part in parts)
    )


@given(st.text(), st.sampled_from([X, "http://", "", "https://a/%2e%2e/", "file:///", "//"]))
def test_no_uri_leads_out_of_the_copy(text, start):
    try:
        place = place_of(start + text)
    except ValueError:  # no URI at all; it is reported and skipped
        return
    assert is_inside(place)
    assert len(place.encode()) <= PATH_BYTES


@pytest.mark.parametrize(
    ("length", "is_cut"), [(COMPONENT_BYTES, False), (COMPONENT_BYTES + 1, True)]
)
def test_a_component_that_is_too_long_is_cut_and_marked(length, is_cut):
    name = place_of(X + "a" * length).rpartition("/")[2]
    assert (name != "a" * length) == is_cut
    assert len(name) <= 255


def test_two_long_names_with_the_same_beginning_have_two_places():
    assert place_of(X + "a" * 300 + "b") != place_of(X + "a" * 300 + "c")


def test_a_path_that_is_too_long_is_stored_under_its_digest():
    at_limit = X + "/".join(["abcd"] * ((PATH_BYTES - len("example.com")) // 5))
    assert place_of(at_limit).endswith("abcd/abcd")
    over = at_limit + "/abcd"
    assert (
        place_of(over) == f"example.com/~long/{digest(over, 64)}"
        or len(place_of(over)) <= PATH_BYTES
    )
    far_over = X + "a/" * 5_000
    assert place_of(far_over) == f"example.com/~long/{digest(far_over, 64)}"


def test_a_path_of_too_many_folders_is_stored_under_its_digest():
    at_limit = X + "a/" * (PATH_FOLDERS - 1) + "b"
    assert place_of(at_limit).count("/") == PATH_FOLDERS
    over = X + "a/" * PATH_FOLDERS + "b"
    assert place_of(over) == f"example.com/~long/{digest(over, 64)}"


def test_a_prefix_is_mapped_to_a_folder_and_cannot_leave_it():
    maps = [(X + "data/", "data/pdf"), (X, "rest")]
    assert place_of(X + "data/a", maps) == "data/pdf/a"
    assert place_of(X + "b", maps) == "rest/b"
    assert place_of(X + "data/../../c", maps) == "data/pdf/%2E%2E/%2E%2E/c"
    assert place_of("http://other.example/d", maps) == "other.example/d"


class Places:
    """Files as they get their places, one after the other."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.folders: set[str] = set()

    def add(self, loc: str) -> str:
        known = dict.fromkeys(self.files, True) | dict.fromkeys(self.folders, False)
        path = settled(place_of(loc), loc, known.get)
        parts = path.split("/")
        self.folders |= {key_of("/".join(parts[:end])) for end in range(1, len(parts))}
        assert key_of(path) not in self.files | self.folders
        assert not self.folders & self.files
        self.files.add(key_of(path))
        return path


def test_names_that_differ_in_case_only_have_two_places():
    places = Places()
    assert places.add(X + "A.txt") == "example.com/A.txt"
    assert places.add(X + "a.txt") == f"example.com/a~{digest(X + 'a.txt')}.txt"


def test_names_that_differ_in_their_unicode_form_only_have_two_places():
    places = Places()
    assert places.add(X + "e%CC%81") != places.add(X + "%C3%A9")


def test_a_file_and_a_folder_of_one_name_have_two_places_in_either_order():
    places = Places()
    assert places.add(X + "a") == "example.com/a"
    assert places.add(X + "a/b") == "example.com/a~dir/b"
    assert places.add(X + "c/d") == "example.com/c/d"
    assert places.add(X + "c") == f"example.com/c~{digest(X + 'c')}"


@given(st.lists(st.text(alphabet="aA/.~%2eéÉ", max_size=8), max_size=12, unique=True))
def test_any_set_of_uris_has_as_many_places(rests):
    places = Places()
    found = [places.add(X + rest) for rest in rests]
    assert len(set(map(key_of, found))) == len(rests)
    assert all(map(is_inside, found))


NO_MAP = [("urn:nothing:", "elsewhere")]
NEARLY_PLAIN = st.from_regex(
    r"https?://[A-Za-z0-9.:-]{1,9}(/[\w.~%-]{0,9}){0,3}(/[a-z]{95,105}){0,2}", fullmatch=True
)


@pytest.mark.evidence
@given(NEARLY_PLAIN)
def test_a_plain_address_has_the_place_that_the_rules_would_give_it(loc):
    try:
        place = place_of(loc)
    except ValueError:
        return
    assert place == place_of(loc, NO_MAP)


@pytest.mark.parametrize("depth", [15, 16, 17])
@pytest.mark.parametrize("length", [99, 100, 101, 241])
def test_a_long_plain_address_has_the_place_that_the_rules_would_give_it(depth, length):
    loc = X + f"{'f' * length}/" * depth + "f" * length
    assert place_of(loc) == place_of(loc, NO_MAP)
