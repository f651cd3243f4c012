"""The lean HTTP client against a peer that sends what a test says, byte by byte."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rsnotify_client.http1 import pool
from rsnotify_client.http1.answer import INTERIM_ANSWERS, Answer
from rsnotify_client.http1.connection import HEAD_BYTES, HEAD_LINES, BadAnswer, HttpConnection
from rsnotify_client.http1.pool import IDLE_IN_ALL, IDLE_SECONDS, ConnectionPool
from rsnotify_client.http1.target import Target, target_of
from rsnotify_client.web import REDIRECTS, Refused, Web

OK = b"HTTP/1.1 200 OK\r\n"
LINES = HEAD_LINES - 2  # besides the first line and Content-Length


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
        thread.join(10)
        listener.close()


@contextmanager
def answered(sent: bytes) -> Iterator[Answer]:
    connections = ConnectionPool()
    try:
        with peer(sent) as (url, _):
            answer = connections.ask("GET", url, {})
            try:
                yield answer
            finally:
                answer.close()
                connections.close()
    finally:
        connections.close()


@pytest.mark.parametrize(
    ("sent", "body", "serves_again"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabc", b"abc", True),
        (OK + b"content-length:3\r\nConnection: close\r\n\r\nabc", b"abc", False),
        (OK + b"\r\nabc", b"abc", False),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            b"abc",
            True,
        ),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: b\r\n\r\n", b"abc", True),
        (b"HTTP/1.1 103 Early\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", b"", True),
        (b"HTTP/1.1 204 None\r\nContent-Length: 9\r\n\r\n", b"", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", False),
    ],
)
def test_a_body_ends_where_its_framing_says(sent: bytes, body: bytes, serves_again: bool) -> None:
    with answered(sent) as answer:
        assert (answer.read(100), answer.serves_again) == (body, serves_again)


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
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"",
    ],
)
def test_what_is_no_whole_answer_is_refused(sent: bytes) -> None:
    with pytest.raises(BadAnswer), answered(sent) as answer:
        answer.read(100)


@pytest.mark.parametrize(
    ("sent", "fits"),
    [
        (OK + b"A: b\r\n" * LINES + b"Content-Length: 0\r\n\r\n", True),
        (OK + b"A: b\r\n" * (LINES + 1) + b"Content-Length: 0\r\n\r\n", False),
        (OK + b"Content-Length: 0\r\nA: ".ljust(HEAD_BYTES - len(OK), b"a") + b"\r\n\r\n", True),
        (
            OK + b"Content-Length: 0\r\nA: ".ljust(HEAD_BYTES + 1 - len(OK), b"a") + b"\r\n\r\n",
            False,
        ),
        (
            b"HTTP/1.1 100 C\r\n\r\n" * (INTERIM_ANSWERS - 1) + OK + b"Content-Length: 0\r\n\r\n",
            True,
        ),
        (b"HTTP/1.1 100 C\r\n\r\n" * INTERIM_ANSWERS + OK + b"Content-Length: 0\r\n\r\n", False),
    ],
)
def test_what_a_peer_may_say_before_the_body_is_bounded(sent: bytes, fits: bool) -> None:
    if fits:
        with answered(sent) as answer:
            assert answer.status == 200
    else:
        with pytest.raises(BadAnswer), answered(sent):
            pass


def test_a_connection_serves_again_and_one_that_was_closed_is_made_anew() -> None:
    sent = OK + b"Content-Length: 1\r\n\r\na"
    connections = ConnectionPool()
    with peer(sent, sent, b"", sent) as (url, asked):
        lines = set()
        for _ in range(3):
            answer = connections.ask("GET", url, {})
            assert answer.read(9) == b"a"
            lines.add(answer.connection)
            answer.close()
    connections.close()
    assert (len(lines), len(asked)) == (2, 4)


def kept(connections: ConnectionPool, port: int, number: int) -> Target:
    """An origin with one connection that is idle."""
    connection = HttpConnection(Target("http", "127.0.0.1", port, ""))
    target = Target("http", f"{number}.example", port, "")
    connection.origin = target.origin
    connections.keep(connection)
    return target


def is_idle(connections: ConnectionPool, target: Target) -> bool:
    """Whether it was; it is taken out."""
    if (found := connections.idle(target)) is not None:
        found.close()
    return found is not None


@contextmanager
def listening() -> Iterator[int]:
    """A port at which nobody says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=IDLE_IN_ALL + 1) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize("excess", [0, 1])
def test_so_many_connections_are_idle_and_the_one_idle_for_longest_is_closed(excess: int) -> None:
    connections = ConnectionPool()
    with listening() as port:
        origins = [kept(connections, port, number) for number in range(IDLE_IN_ALL + excess)]
        are_idle = [is_idle(connections, target) for target in origins]
    connections.close()
    assert are_idle == [False] * excess + [True] * IDLE_IN_ALL


@pytest.mark.parametrize("excess", [0, 1])
def test_a_connection_is_idle_for_so_long_and_no_longer(
    excess: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections, now = ConnectionPool(), 1_000.0
    monkeypatch.setattr(pool, "monotonic", lambda: now)
    with listening() as port:
        old = kept(connections, port, 1)
        now += IDLE_SECONDS + excess
        new = kept(connections, port, 2)
        assert is_idle(connections, old) == (not excess)
        assert is_idle(connections, new)
    connections.close()


@pytest.mark.parametrize("url", ["ftp://a/", "http://", "http://a:b/", "http://a:99999/"])
def test_what_is_no_address_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of several origins
        target_of(url)


def test_no_address_can_add_a_line_to_a_request() -> None:
    target = target_of("http://a.example/x\r\nEvil: 1?y z\n")
    assert target.lines.count("\r\n") == 2
    assert target_of("http://[::1]:81/../a").lines == "/a HTTP/1.1\r\nHost: [::1]:81\r\n"


@pytest.mark.parametrize("redirects", [REDIRECTS, REDIRECTS + 1])
def test_a_request_is_redirected_so_often_and_no_more(redirects: int) -> None:
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
