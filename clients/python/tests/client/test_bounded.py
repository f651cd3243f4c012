"""What a peer may send to the Python client, byte by byte, however hostile it is.

These tests hold the seam below urllib3 and `http.client`: they fail when one of them reads in
another way than `rsnotify_client/bounded.py` expects.
"""

import asyncio
import gc
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, count, repeat
from time import sleep

import pytest
import urllib3

from rsnotify_client import bounded
from rsnotify_client.answer import TooSlow
from rsnotify_client.bounded import HEAD_BYTES, HEAD_LINES, INTERIM_ANSWERS, BadAnswer
from rsnotify_client.transport import Answer, Transport, target_of
from rsnotify_client.web import REDIRECTS, Refused, Web

OK = b"HTTP/1.1 200 OK\r\n"
LINES = HEAD_LINES - 3  # besides the first line, Content-Length and the empty line


@contextmanager
def peer(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Gives each request on each connection the next answer; an empty one closes instead."""
    asked: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        left = list(answers)
        while left:
            with listener.accept()[0] as peer_socket:
                while left and (request := peer_socket.recv(65_536)):
                    asked.append(request)
                    answer = left.pop(0)
                    peer_socket.sendall(answer)
                    if b"Content-Length" not in answer and b"chunked" not in answer:
                        break

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", asked
    finally:
        thread.join(60)
        listener.close()


@contextmanager
def answered(sent: bytes) -> Iterator[Answer]:
    with closing(Transport()) as transport, peer(sent) as (url, _):
        try:
            answer = transport.ask("GET", url, {})
            try:
                yield answer
            finally:
                answer.close()
        finally:
            transport.close()


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc"),
        (OK + b"content-length:3\r\nConnection: close\r\n\r\nabc", b"abc"),
        (OK + b"\r\nabc", b"abc"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            b"abc",
        ),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n", b"abc"),
        (b"HTTP/1.1 103 Early\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 204 None\r\nContent-Length: 9\r\n\r\n", b""),
        (b"HTTP/1.1 304 As before\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a"),
    ],
)
def test_a_body_ends_where_its_framing_says(sent, body):
    with answered(sent) as answer:
        assert (answer.read(100), answer.read(1), answer.is_read) == (body, b"", True)


@pytest.mark.parametrize(
    "sent",
    [
        OK + b"Content-Length: 3\r\n\r\nab",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\nab\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        OK + b"no field\r\n\r\n",
        OK + b"A : b\r\n\r\n",
        OK + b"A: b\0c\r\n\r\n",
        OK + b"A: b\rc\r\n\r\n",
        OK + b"A: b\r\n c\r\n\r\n",
        OK + b"A: b\r\nConte",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
    ],
)
def test_what_is_no_whole_answer_is_refused(sent):
    with pytest.raises(BadAnswer), answered(sent) as answer:
        answer.read(100)


@pytest.mark.parametrize(
    ("sent", "fits"),
    [
        (OK + b"A: b\r\n" * LINES + b"Content-Length: 0\r\n\r\n", True),
        (OK + b"A: b\r\n" * (LINES + 1) + b"Content-Length: 0\r\n\r\n", False),
        (
            OK + b"Content-Length: 0\r\nA: ".ljust(HEAD_BYTES - 4 - len(OK), b"a") + b"\r\n\r\n",
            True,
        ),
        (
            OK + b"Content-Length: 0\r\nA: ".ljust(HEAD_BYTES - 3 - len(OK), b"a") + b"\r\n\r\n",
            False,
        ),
        (
            b"HTTP/1.1 100 C\r\n\r\n" * INTERIM_ANSWERS + OK + b"Content-Length: 0\r\n\r\n",
            True,
        ),
        (b"HTTP/1.1 100 C\r\n\r\n" * (INTERIM_ANSWERS + 1) + OK + b"\r\n", False),
        (b"HTTP/1.1 103 E\r\nLink: <a>\r\n\r\n" * INTERIM_ANSWERS + OK + b"\r\n", True),
        (b"HTTP/1.1 103 E\r\n\r\n" * (INTERIM_ANSWERS + 1) + OK + b"\r\n", False),
    ],
)
def test_what_a_peer_may_say_before_the_body_is_bounded(sent, fits):
    if fits:
        with answered(sent) as answer:
            assert answer.status == 200
    else:
        with pytest.raises(BadAnswer), answered(sent):
            pass


def test_a_connection_serves_again_and_one_that_was_closed_is_made_anew():
    sent = OK + b"Content-Length: 1\r\n\r\na"
    with closing(Transport()) as transport, peer(sent, sent, b"", sent) as (url, asked):
        for _ in range(3):
            answer = transport.ask("GET", url, {})
            assert answer.read(9) == b"a"
            answer.close()
        transport.close()
    assert len(asked) == 4  # by two connections: the third request was sent again


@pytest.mark.parametrize("url", ["ftp://a/", "http://", "http://a:b/", "http://a:99999/"])
def test_what_is_no_address_is_a_value_error(url):
    with pytest.raises(ValueError):  # noqa: PT011 - of several origins
        target_of(url)


def test_no_address_can_add_a_line_to_a_request():
    assert target_of("http://a.example/x\r\nEvil: 1?y z\n").path == "/xEvil:%201?y%20z"
    assert target_of("http://[::1]:81/../a") == ("http", "::1", 81, "/a")


@pytest.mark.parametrize("redirects", [REDIRECTS, REDIRECTS + 1])
def test_a_request_is_redirected_so_often_and_no_more(redirects):
    moved = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n"
    found = OK + b"Content-Length: 0\r\n\r\n"
    with peer(*[moved] * redirects, *[found] * (redirects == REDIRECTS)) as (url, asked):
        asyncio.run(_redirected(url, is_refused=redirects > REDIRECTS))
    assert len(asked) == REDIRECTS + 1


async def _redirected(url: str, *, is_refused: bool) -> None:
    async with Web() as web:
        if is_refused:
            with pytest.raises(Refused, match="is redirected more than 5 times"):
                web.answer(url, {})
        else:
            answer = web.answer(url, {})
            answer.close()
            assert answer.status == 200


# Hostile peers ------------------------------------------------------------------------------------

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSED = OK + b"\r\n"


@contextmanager
def hostile(pieces: Callable[[], Iterator[bytes]], seconds: float = 0.0) -> Iterator[str]:
    """A peer that sends these until the client has enough, so many seconds apart."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as peer_socket:
            peer_socket.recv(65_536)
            for piece in pieces():
                peer_socket.sendall(piece)
                sleep(seconds)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        thread.join(20)
        assert not thread.is_alive()
        listener.close()


def taken(url: str, read_seconds: float = 5.0) -> int:
    """How many bytes of a body the client reads before it has enough."""
    with closing(Transport(read_seconds=read_seconds)) as transport:
        answer, count = transport.ask("GET", url, {}), 0
        with closing(answer):
            while piece := answer.piece(65_536):
                count += len(piece)
        return count


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (lambda: chain([OK], repeat(b"A: b\r\n")), "more than 96 header fields"),
        (lambda: chain([OK, b"A: "], repeat(b"a" * 8192)), "longer than 32768 bytes"),
        (lambda: chain([OK], repeat(b"A: " + b"a" * 60_000 + b"\r\n")), "longer than 32768"),
        (lambda: repeat(b"HTTP/1.1 100 C\r\n\r\n"), "more than 8 interim answers"),
        (lambda: repeat(b"HTTP/1.1 103 E\r\nA: b\r\n\r\n"), "more than 8 interim answers"),
        (lambda: chain([CHUNKED, b"1;"], repeat(b"a" * 8192)), "longer than 32768 bytes"),
        (lambda: chain([CHUNKED, b"0\r\n"], repeat(b"A: b\r\n")), "more than 96 header fields"),
        (lambda: chain([CHUNKED, b"0\r\nA: "], repeat(b"a" * 8192)), "longer than 32768"),
        (
            lambda: chain([CHUNKED], repeat(b"1;" + b"a" * 1024 + b"\r\na\r\n")),
            "more chunk lengths than content",
        ),
    ],
)
def test_a_peer_that_never_ends_is_given_up(sent, words):
    with hostile(sent) as url, pytest.raises(BadAnswer, match=words):
        taken(url)


def test_many_chunks_of_a_byte_are_a_body():
    count = 20_000
    with hostile(lambda: iter([CHUNKED, b"1\r\na\r\n" * count, b"0\r\n\r\n"])) as url:
        assert taken(url) == count


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait for the peer seems to take 40 s of the 60 that it may take in all."""
    monkeypatch.setattr(bounded, "monotonic", partial(next, count(0.0, 40.0)))


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize("begun", [b"", OK, OK + b"A: b\r\nB", b"HTTP/1.1 103 E\r\n\r\n"])
def test_a_head_that_comes_byte_by_byte_has_one_deadline(begun):
    slow = chain([begun], repeat(b"a"))
    words = "the head of the answer took more than 60 s"
    with hostile(lambda: slow, 0.01) as url, pytest.raises(TooSlow, match=words):
        taken(url, read_seconds=60)


@pytest.mark.usefixtures("slow_clock")
@pytest.mark.parametrize(
    "begun", [UNTIL_CLOSED, OK + b"Content-Length: 9999\r\n\r\n", CHUNKED + b"270f\r\n"]
)
@pytest.mark.parametrize(("seconds", "least"), [(60, 16384), (61, 16384), (41, 11196)])
def test_a_body_that_comes_too_slowly_is_given_up(begun, seconds, least):
    slow = chain([begun], repeat(b"a"))
    words = f"fewer than {least} bytes came in {min(seconds, 60)} s"
    with hostile(lambda: slow, 0.01) as url, pytest.raises(TooSlow, match=words):
        taken(url, read_seconds=seconds)


@pytest.mark.usefixtures("slow_clock")
def test_a_body_that_comes_slowly_but_fast_enough_is_read(monkeypatch):
    monkeypatch.setattr(bounded, "SLOWEST_BYTES", 8)
    with hostile(lambda: chain([UNTIL_CLOSED], [b"a" * 8] * 30), 0.01) as url:
        assert taken(url, read_seconds=60) == 240


def test_the_whole_of_an_answer_can_have_a_deadline():
    with (
        hostile(lambda: chain([UNTIL_CLOSED], repeat(b"a" * 65_536))) as url,
        closing(Transport()) as transport,
    ):
        answer = transport.ask("GET", url, {})
        answer.limit(0.0)
        with closing(answer), pytest.raises(TooSlow, match="the whole answer"):
            answer.read(2**30)


def test_a_stream_of_events_may_be_as_slow_as_it_likes(monkeypatch):
    monkeypatch.setattr(bounded, "SLOWEST_SECONDS", 0.01)
    with (
        hostile(lambda: chain([UNTIL_CLOSED], [b"a"] * 5), 0.02) as url,
        closing(Transport()) as transport,
        closing(transport.ask("GET", url, {})) as answer,
    ):
        answer.limit(is_endless=True)
        assert answer.read(9) == b"aaaaa"


@contextmanager
def many_at_once() -> Iterator[str]:
    """Answers as many at once as ask."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(UNTIL_CLOSED + b"aaaaa")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


@pytest.mark.parametrize("end", ["is closed", "never ends"])
def test_of_one_server_no_more_answers_are_open_than_may_be(end):
    happened: list[str] = []
    with (
        many_at_once() as url,
        closing(Transport(per_server=2)) as transport,
        ThreadPoolExecutor(1) as threads,
    ):

        def ask() -> Answer:
            answer = transport.ask("GET", url, {})
            happened.append("the third is asked for")
            return answer

        first, second = (transport.ask("GET", url, {}) for _ in range(2))
        third = threads.submit(ask)
        happened.append(end)
        first.close() if end == "is closed" else first.limit(is_endless=True)
        third.result(20).close()
        assert happened == [end, "the third is asked for"]
        first.close()
        first.close()
        fourth = threads.submit(ask)  # a place is given up once only
        fourth.result(20)
        fifth = threads.submit(ask)
        happened.append("the second is closed")
        second.close()
        fifth.result(20).close()
        assert happened[-2:] == ["the second is closed", "the third is asked for"]
        fourth.result().close()


@pytest.mark.evidence
def test_the_garbage_collector_may_close_an_answer_in_the_middle_of_anything():
    most = 40
    with many_at_once() as url:
        transport = Transport(per_server=most)
        last, *others = (transport.ask("GET", url, {}) for _ in range(most))

        class Garbage:
            def __init__(self) -> None:
                self.me = self

            def __del__(self) -> None:
                others.pop().close()

        def collect(_: object, event: str, __: object) -> None:
            if event == "call":
                Garbage()
                gc.collect()

        def close() -> None:
            sys.setprofile(collect)  # at each call
            last.close()
            sys.setprofile(None)

        thread = threading.Thread(target=close, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        others += (transport.ask("GET", url, {}) for _ in range(most - len(others)))
        for answer in others:
            answer.close()
        transport.close()


def test_a_request_that_waits_for_its_place_ends_with_the_client():
    with (
        many_at_once() as url,
        ThreadPoolExecutor(1) as threads,
    ):
        transport = Transport(per_server=1)
        open_one = transport.ask("GET", url, {})
        waiting = threads.submit(transport.ask, "GET", url, {})
        transport.close()
        with pytest.raises(BadAnswer, match="the client was closed"):
            waiting.result(20)
        open_one.close()


def test_a_request_that_fails_gives_its_place_up():
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
    with closing(Transport(per_server=1)) as transport:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                transport.ask("GET", url, {})


def test_a_peer_that_says_nothing_is_given_up():
    silence = threading.Event()
    with hostile(lambda: (b"" for _ in [silence.wait(20)])) as url:
        with pytest.raises(TimeoutError):
            taken(url, read_seconds=0.1)
        silence.set()


def test_who_waits_for_an_answer_is_woken_by_another_thread():
    silence, was_silent = threading.Event(), list[bool]()

    def pieces() -> Iterator[bytes]:
        yield UNTIL_CLOSED + b"a"
        was_silent.append(silence.wait(20))  # it closes the connection after that

    with (
        hostile(pieces) as url,
        closing(Transport()) as transport,
        closing(transport.ask("GET", url, {})) as answer,
    ):
        assert answer.read(1) == b"a"
        waker = threading.Timer(0.05, answer.abort)
        waker.start()
        assert answer.piece() == b""
        waker.join()
        silence.set()
    assert was_silent == [True]


def test_the_seam_is_that_of_the_urllib3_that_was_tried():
    assert urllib3.connection.HTTPConnection.response_class is bounded.HTTPResponse
    with answered(OK + b"Content-Length: 1\r\n\r\na") as answer:
        assert isinstance(answer.http, bounded.BoundedResponse)
        assert answer.http.fp is answer.http.reader


def test_what_came_before_a_peer_fell_silent_is_not_lost():
    silence = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield OK + b"Content-Length: 200000\r\n\r\n" + b"a" * 50_000
        silence.wait(20)

    with (
        hostile(pieces) as url,
        closing(Transport(read_seconds=0.5)) as transport,
        closing(transport.ask("GET", url, {})) as answer,
    ):
        try:
            room = memoryview(bytearray(100_000))
            assert answer.readinto(room) == 50_000
            assert room[:50_000] == b"a" * 50_000
            with pytest.raises(TimeoutError):
                answer.readinto(room)
        finally:
            silence.set()
