"""A body unpacked: what its Content-Encoding says, no more than is allowed, or refused by name."""

import gzip

import pytest

from rsnotify.errors import Rejected
from rsnotify.http.endpoints import decoded
from tests.support.packing import bomb

MOST = 1_000
CONTENT = b"x" * MOST


@pytest.mark.parametrize("encoding", ["", "identity", " Identity "])
def test_a_plain_body_stays_as_it_is(encoding):
    assert decoded(b"plain", encoding, MOST) == b"plain"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP"])
def test_a_packed_body_is_unpacked_up_to_the_limit(encoding):
    assert decoded(gzip.compress(CONTENT), encoding, MOST) == CONTENT


REFUSED = [
    (b"{}", "gzip", 400, "the body is no whole gzip, as its Content-Encoding says"),
    (b"", "gzip", 400, "it breaks off"),
    (gzip.compress(CONTENT)[:-1], "gzip", 400, "it breaks off"),
    (gzip.compress(CONTENT) + b"{}", "gzip", 400, "incorrect header"),
    (gzip.compress(CONTENT + b"x"), "gzip", 413, "unpacked, the body exceeds 1000 bytes"),
    (bomb(50_000_000), "gzip", 413, "unpacked, the body exceeds 1000 bytes"),
    (b"{}", "br", 415, "Content-Encoding 'br' is not understood; send gzip"),
    (b"{}", "gzip, gzip", 415, "is not understood"),
]


@pytest.mark.parametrize(
    ("body", "encoding", "status", "told"), REFUSED, ids=[row[3][:20] for row in REFUSED]
)
def test_what_is_not_what_it_says_is_refused(body, encoding, status, told):
    with pytest.raises(Rejected) as refused:
        decoded(body, encoding, MOST)
    assert (refused.value.status, told in refused.value.detail) == (status, True)
