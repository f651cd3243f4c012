"""An open connection by itself: what it keeps, what it writes, when it writes nothing."""

from typing import Any

import pytest

from rsnotify.delivery.channels.socket_reader import SocketReader
from tests.raw import BINARY, PING, PONG, TEXT, frame


class Transport:
    """Remembers what was written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False


@pytest.fixture
def transport() -> Any:
    return Transport()


@pytest.fixture
def reader(transport: Any) -> SocketReader:
    return SocketReader(transport, is_deflated=False)


PONG_OF_X = b"\x8a\x01x"


@pytest.mark.parametrize("sent", [frame(PING, b"x"), frame(PONG, b"x"), frame(PONG)])
def test_nothing_is_kept_of_a_ping_or_a_pong(reader: SocketReader, sent: bytes) -> None:
    reader.data_received(sent)
    assert reader.parser is None


def test_a_pong_is_the_answer_to_the_hub_s_ping(reader: SocketReader) -> None:
    reader.deadline = 20.0
    reader.data_received(frame(PONG))
    assert reader.deadline is None


def test_what_looks_like_a_ping_within_a_message_is_none(
    reader: SocketReader, transport: Any
) -> None:
    inner = frame(PING, b"x")
    message = frame(BINARY, b"y" + inner)
    reader.data_received(message[: -len(inner)])
    reader.data_received(inner)
    assert transport.written == []
    reader.data_received(inner)
    assert transport.written == [PONG_OF_X]


def test_the_newest_ping_of_a_paused_reader_is_answered_once_it_reads_again(
    reader: SocketReader, transport: Any
) -> None:
    reader.pause_writing()
    reader.data_received(frame(PING, b"w"))
    reader.data_received(frame(TEXT, b"hello") + frame(PING, b"v") + frame(PING, b"x"))
    assert transport.written == []
    reader.resume_writing()
    assert transport.written == [PONG_OF_X]
    reader.pause_writing()
    reader.resume_writing()
    assert transport.written == [PONG_OF_X]


def test_whoever_reads_again_lives(reader: SocketReader) -> None:
    reader.deadline = 20.0
    reader.pause_writing()
    reader.resume_writing()
    assert reader.deadline is None
