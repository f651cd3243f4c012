"""A forward proxy as institutions have them: absolute addresses, CONNECT, a password; and SOCKS 5.

It alone knows where names lead, so what reaches `source.example` came through it.
"""

import select
import socket
import struct
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NEEDS_PASSWORD = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n"
    b"Content-Length: 0\r\n\r\n"
)
ALLOWED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class ForwardProxy:
    """On a port of its own; `seen` are the first lines of what it was asked."""

    def __init__(self, password: str | None = None, address: str = "127.0.0.1") -> None:
        self.names: dict[str, str] = {}
        self.seen: list[str] = []
        self.password = password
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        login = "" if password is None else f"user:{password}@"
        self.url = f"http://{login}{address}:{self.port}"
        self.socks_url = f"socks5h://{address}:{self.port}"

    def environment(self) -> dict[str, str]:
        """For those who are to use it."""
        return {"http_proxy": self.url, "https_proxy": self.url}

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, ValueError):
            first = client.recv(1, socket.MSG_PEEK)
            if first == b"\x05":
                self._serve_socks(client)
            elif first:
                self._serve_http(client)

    def _serve_http(self, client: socket.socket) -> None:
        """One request by each connection is enough: `Connection: close` is added to it."""
        head = b""
        while b"\r\n\r\n" not in head:
            if not (piece := client.recv(65_536)):
                return
            head += piece
        lines, _, rest = head.partition(b"\r\n\r\n")
        line, *fields = lines.split(b"\r\n")
        self.seen.append(line.decode())
        wanted = b"Basic " + b64encode(f"user:{self.password}".encode())
        if self.password is not None and b"proxy-authorization: " + wanted not in [
            each.split(b":")[0].lower() + b":" + each.partition(b":")[2] for each in fields
        ]:
            client.sendall(NEEDS_PASSWORD)
            return
        method, address, version = line.split(b" ")
        if method == b"CONNECT":
            host, _, port = address.decode().rpartition(":")
            with self._connected(host, int(port)) as server:
                client.sendall(ALLOWED)
                server.sendall(rest)
                pump(client, server)
            return
        authority, slash, path = address.decode().removeprefix("http://").partition("/")
        host, _, port = authority.partition(":")
        kept = [each for each in fields if not each.lower().startswith((b"proxy-", b"connection"))]
        asked = [b" ".join([method, (slash + path).encode() or b"/", version]), *kept]
        with self._connected(host, int(port or 80)) as server:
            server.sendall(b"\r\n".join([*asked, b"Connection: close", b"", b""]) + rest)
            pump(client, server)

    def _serve_socks(self, client: socket.socket) -> None:
        _, count = client.recv(2)
        client.recv(count)
        client.sendall(b"\x05\x00")
        _, _, _, kind = client.recv(4)
        if kind == 3:
            host = client.recv(client.recv(1)[0]).decode()
        else:
            host = socket.inet_ntoa(client.recv(4))
        (port,) = struct.unpack(">H", client.recv(2))
        self.seen.append(f"SOCKS {host}:{port}")
        with self._connected(host, port) as server:
            client.sendall(b"\x05\x00\x00\x01" + bytes(6))
            pump(client, server)

    def _connected(self, host: str, port: int) -> socket.socket:
        return socket.create_connection((self.names.get(host, host), port), 10)


def pump(one: socket.socket, other: socket.socket) -> None:
    """Both ways, until one side has ended."""
    to = {one: other, other: one}
    while True:
        for ready in select.select([one, other], [], [], 30)[0]:
            data = ready.recv(65_536)
            if not data:
                return
            to[ready].sendall(data)


@contextmanager
def forward_proxy(
    names: dict[str, str] | None = None, password: str | None = None
) -> Iterator[ForwardProxy]:
    proxy = ForwardProxy(password)
    proxy.names.update(names or {})
    thread = threading.Thread(target=proxy.accept)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(10)
