"""Why a hub could not be reached, in few words."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from rsnotify.errors import Rejected, TryAgain
from rsnotify_client.answer import NO_HOST, HubUnreachable, cause_of, untrusted
from rsnotify_client.follower import Follower
from rsnotify_client.hub import NO_HOST_SECONDS, HubClient, patiently
from tests.support.stream_server import StreamServer

CERTIFICATE = (
    Path(__file__).parents[4] / "tests/support/certificate.pem"
)  # for localhost, signed by itself


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9)"), "connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 113] No route"),
            "connection refused",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), NO_HOST),
        (
            socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
            "temporary failure in name resolution",
        ),
        (TimeoutError(), "no answer in time"),
        (EOFError(), "EOFError"),
        (ssl.SSLError(1, "[SSL: UNSUPPORTED_PROTOCOL]"), "TLS failed: [ssl: unsupported protocol]"),
    ],
)
def test_a_cause_is_told_without_addresses_and_types(error, cause):
    assert cause_of(error) == cause


@pytest.mark.parametrize(
    ("cause", "seconds"), [(NO_HOST, NO_HOST_SECONDS), ("connection refused", 60.0)]
)
def test_a_name_that_nobody_knows_is_not_asked_for_a_minute(cause, seconds, monkeypatch):
    now = [0.0]

    def wait(length: float) -> bool:
        now[0] += length
        return True

    def ask() -> None:
        raise HubUnreachable("https://hub.example.org", cause)

    monkeypatch.setattr("rsnotify_client.hub.monotonic", lambda: now[0])
    monkeypatch.setattr("rsnotify_client.hub.waited", wait)
    monkeypatch.setattr("rsnotify_client.hub.random.random", lambda: 1.0)
    with pytest.raises(HubUnreachable):
        patiently(ask, 60.0)
    assert seconds / 3 <= now[0] <= seconds


@asynccontextmanager
async def server(*, is_secure: bool) -> AsyncIterator[int]:
    """A server on localhost that says 503 to everything; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if is_secure else None
    if context is not None:
        context.load_cert_chain(CERTIFICATE)
    async with StreamServer(answer, ssl=context) as running:
        yield running.port


async def refusal(url: str) -> Exception:
    """What the client says of a hub there; it asks once."""
    with pytest.raises((Rejected, TryAgain)) as raised, closing(HubClient(url)) as hub:
        await asyncio.to_thread(hub.ask, "GET", "/api/sets")
    return raised.value


async def test_an_untrusted_certificate_is_told_with_the_mend_and_not_tried_again():
    async with server(is_secure=True) as port:
        refused = await refusal(f"https://localhost:{port}")
        assert isinstance(refused, Rejected)
        assert refused.detail.endswith(
            "its certificate is not trusted (self-signed certificate): "
            "name the file of the authority that signed it in SSL_CERT_FILE"
        )
        with pytest.raises(Rejected, match="certificate is not trusted"):
            await anext(aiter(Follower(f"wss://localhost:{port}/channels/a/change")))


async def test_a_certificate_is_trusted_once_its_authority_is_named(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with server(is_secure=True) as port:
        with pytest.raises(Exception, match="503"):
            await connect(f"wss://localhost:{port}")


async def test_a_certificate_for_another_name_is_told_so(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with server(is_secure=True) as port:
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            await connect(f"wss://127.0.0.1:{port}")
    assert (untrusted(refused.value) or "").endswith("use the name that it was made for")


async def test_tls_to_a_port_without_it_is_told_so():
    async with server(is_secure=False) as port:
        refused = await refusal(f"https://localhost:{port}")
    assert isinstance(refused, HubUnreachable)
    assert refused.cause == "it does not speak TLS: is it an http:// address?"
    assert refused.detail.endswith(f"cannot be reached: {refused.cause}")  # one question is enough
