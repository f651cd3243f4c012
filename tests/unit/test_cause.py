"""Why a hub could not be reached, in few words."""

import socket

import pytest
from aiohttp import ServerDisconnectedError

from rsnotify_client.cause import cause_of


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route"),
            "connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError(), "no answer in time"),
        (ServerDisconnectedError(), "server disconnected"),
        (EOFError(), "EOFError"),
    ],
)
def test_a_cause_is_told_without_addresses_and_types(error: Exception, cause: str) -> None:
    assert cause_of(error) == cause
