"""A connection that the library has made, written to and read from without the library.

Its streams, and a timer for each answer, cost more than half of what it takes to ask Redis. Here
what Redis says is parsed as it arrives. The library still hears of the connection's end.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import InvalidResponse, ReadOnlyError

from rsnotify.redis_client.script import Command

RECHECK_SECONDS = 0.01  # for what came while this process was busy, and was not read yet
CLOSED = "Redis closed the connection"

REFUSALS = (ConnectionLost, ReadOnlyError)  # Redis serves nobody now, or not us

_INCOMPLETE = object()


class TakenConnection(asyncio.Protocol):
    """Its transport, with our parser and our end of it. What arrives goes to `data_received` of a
    subclass, which also knows whom the end has to wake."""

    def __init__(self, library_connection: Any) -> None:
        self.library_connection = library_connection
        self._transport = library_connection._writer.transport
        self._library: asyncio.Protocol = self._transport.get_protocol()
        self._error_of = library_connection._parser.parse_error
        self._reader: Any = hiredis.Reader(
            protocolError=InvalidResponse,
            replyError=self._refused,
            notEnoughData=_INCOMPLETE,
        )
        self.is_usable = not self._transport.is_closing()
        self._failure: Exception | None = None
        self._transport.set_protocol(self)

    def _refused(self, text: str) -> Exception:
        """What Redis refuses, as an error; after some refusals the connection is of no more use."""
        error: Exception = self._error_of(text)
        if isinstance(error, REFUSALS):
            self.is_usable = False
        return error

    def _write(self, commands: Sequence[Command]) -> None:
        try:
            self._transport.write(b"".join(map(hiredis.pack_command, commands)))
        except RuntimeError as error:  # so the event loop says that it was closed just now
            self.is_usable = False
            raise ConnectionLost(str(error)) from error

    def _parse(self, data: bytes, found: list[Any]) -> None:
        """Add what these bytes complete."""
        try:
            self._reader.feed(data)
            found.extend(iter(self._reader.gets, _INCOMPLETE))
        except InvalidResponse as error:
            self._end(error)
        except Exception as error:  # the parser of a refusal fails as it likes
            self._end(InvalidResponse(f"an answer of Redis cannot be read: {error!r}"))

    def abort(self) -> None:
        """Close it at once; whoever waits is told."""
        self._end(ConnectionLost("the connection to Redis was closed"))

    def _end(self, error: Exception) -> None:
        self.is_usable = False
        self._failure = self._failure or error
        self._wake()
        self._transport.abort()

    @abstractmethod
    def _wake(self) -> None:
        """Wake whoever waits for something on this connection."""

    # --- called by the event loop ----------------------------------------------------------------

    def eof_received(self) -> None:
        self._library.eof_received()
        self._end(ConnectionLost(CLOSED))

    def connection_lost(self, error: Exception | None) -> None:
        self._reader = None  # it knows this connection, which is freed at once without it
        self._library.connection_lost(error)
        lost = ConnectionLost(f"{CLOSED}: {error}" if error else CLOSED)
        lost.__cause__ = error
        self._end(lost)

    def pause_writing(self) -> None:
        self._library.pause_writing()

    def resume_writing(self) -> None:
        self._library.resume_writing()
