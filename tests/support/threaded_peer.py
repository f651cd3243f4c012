"""A server that says what a test wants, with threads of its own.

It goes on while the event loop is busy. What it says, it says over its newest connection.
"""

import socket
import threading
import time
from contextlib import suppress
from typing import Any


class ThreadedPeer:
    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.accepted: list[socket.socket] = []
        self.newest = threading.Semaphore(0)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                self.accepted.append(self._listening.accept()[0])
            except OSError:  # it was closed
                return
            self.newest.release()

    def says(self, *pieces: bytes | float) -> None:
        """From another thread: these bytes, with these seconds between them."""
        threading.Thread(target=self._say, args=pieces, daemon=True).start()

    def _say(self, *pieces: bytes | float) -> None:
        with suppress(OSError):  # nobody listens any more
            for piece in pieces:
                if isinstance(piece, bytes):
                    self.accepted[-1].sendall(piece)
                else:
                    time.sleep(piece)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # which wakes whoever accepts
        self._accepting.join()
        self._listening.close()
        for each in self.accepted:
            each.close()

    def options(self, seconds: float) -> dict[str, Any]:
        """For a connection of redis-py, on which an answer may take so long."""
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "protocol": 2,
            "driver_info": None,
            "socket_timeout": seconds,
        }
