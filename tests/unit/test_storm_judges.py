"""What `make soak SOAK_ARGS=storm` says of memory, open files and kept lists is true."""

import os
import socket

import pytest

from tests.evidence.soak.footprint import Footprint, cache_mib, check_flat, footprint, quarters
from tests.evidence.soak.lists import Answer, check_kept
from tests.evidence.soak.storm import tracebacks

LIST = "/dataset1/changelist/T.xml"
KEPT = Answer('"a"', is_immutable=True, body=b"one")


def test_memory_and_files_that_stay_are_flat():
    check_flat([Footprint(100, 50)], [Footprint(110, 60)])


@pytest.mark.parametrize("late", [Footprint(110.1, 50), Footprint(100, 61)])
def test_memory_and_files_that_grow_are_found(late):
    with pytest.raises(AssertionError, match="grown"):
        check_flat([Footprint(100, 50)], [late])


def test_the_last_quarter_is_compared_with_the_second():
    seen = [Footprint(number, 0) for number in range(8)]
    assert quarters(seen) == (seen[2:4], seen[6:])
    assert quarters(seen[:1]) == (seen[:1], seen[:1])


def test_what_is_kept_as_a_cache_is_read_from_the_metrics():
    lines = ("# TYPE rsnotify_cache_bytes gauge", 'rsnotify_cache_bytes{worker="1"} 5.24288e+06')
    assert cache_mib("\n".join((*lines, "rsnotify_cache_limit_bytes 1.0"))) == 5


def test_a_connection_to_the_port_is_no_file_of_the_process_and_any_other_is():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        before = footprint(os.getpid(), port).files
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            assert footprint(os.getpid(), port).files == before + 1  # the client's end


def test_a_list_that_is_the_same_or_has_another_tag_is_true():
    check_kept({LIST: KEPT}, {LIST: KEPT})
    check_kept({LIST: KEPT._replace(is_immutable=False)}, {LIST: Answer('"b"', False, b"two")})
    check_kept({LIST: KEPT._replace(is_immutable=False)}, {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (KEPT, Answer('"b"', is_immutable=False, body=b"two")),
        (KEPT._replace(is_immutable=False), Answer('"a"', is_immutable=False, body=b"two")),
    ],
    ids=["immutable", "the same tag"],
)
def test_a_kept_list_that_is_not_true_any_more_is_found(before, after):
    with pytest.raises(AssertionError, match="changed"):
        check_kept({LIST: before}, {LIST: after})


def test_a_log_that_tells_of_a_bug_is_found():
    log = "2026-11-22 WARNING bad\nTraceback (most recent call last):\n  File\n2026-11-22 INFO x\n"
    assert tracebacks(log) == [log.rpartition("\n2026")[0]]
    assert tracebacks("2026-11-22 INFO fine\n") == []
