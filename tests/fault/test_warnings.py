"""What an operator is told of a trouble: in `rsnotify status`, `/health/ready`, log and metrics."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from rsnotify.operation.warnings import why_certificate_ends
from rsnotify.redis_client import connect
from tests.support.clock import HOUR, Clock
from tests.support.faults import OwnRedis
from tests.support.redis_replicas import replicated
from tests.support.redis_sentinels import watched
from tests.support.redis_server import RedisServer
from tests.support.redis_tls import AUTHORITY, ENDED, SERVER, tls_before
from tests.support.running import RunningHub, rsnotify, until

UNCONFIRMED = (
    "publishing is answered 503: 0 of 1 replicas have confirmed it in time, so that a failover "
    "could lose it"
)
APART = (
    "the clock of Redis is 120 min ahead of that of this machine: changes have their times from "
    "it. Set both right (NTP)"
)
FEW = "1 of 3 Sentinels answer: without most of them no replica takes over if the primary fails"
RENEW = "the certificate of Redis is not trusted (certificate has expired): it must be renewed"


async def beside_ready(hub: RunningHub) -> list[str]:
    status, answer = await hub.ask("GET", "/health/ready")
    assert status == 200
    return list(answer.decode().splitlines()[1:])


async def has_warning(hub: RunningHub, warning: str) -> None:
    """It stands wherever an operator looks, and the hub is ready."""

    async def is_said() -> bool:
        return await beside_ready(hub) == [warning]

    await until(is_said)
    ended = await rsnotify("status", hub=hub)
    first, second, *_ = ended.out.splitlines()
    assert (ended.status, first.endswith(" is ready"), second) == (0, True, f"warning: {warning}")
    assert 'rsnotify_warnings{worker="1"} 1.0' in str((await hub.ask("GET", "/metrics"))[1])
    assert hub.log.read_text().count(f"WARNING {warning}") == 1


async def has_none_again(hub: RunningHub, said: str) -> None:
    async def is_over() -> bool:
        return await beside_ready(hub) == []

    await until(is_over)
    assert hub.log.read_text().count(f"WARNING {said}") == 1
    assert 'rsnotify_warnings{worker="1"} 0.0' in str((await hub.ask("GET", "/metrics"))[1])


async def test_a_replica_that_is_away_is_a_warning_before_anybody_publishes(tmp_path):
    async with replicated(tmp_path) as redis:
        options = ("--redis", redis.primary.url)
        async with RunningHub(tmp_path / "data", *options, replicas="1") as hub:
            (replica,) = redis.replicas
            await replica.kill()
            await has_warning(hub, UNCONFIRMED)
            await replica.start()
            await has_none_again(hub, "replicas confirm what is published again")


@pytest.mark.evidence
async def test_sentinels_that_are_away_are_a_warning_once_no_replica_could_take_over(tmp_path):
    async with watched(tmp_path) as redis, AsyncExitStack() as started:
        hub = RunningHub(tmp_path / "data", "--redis", redis.url)
        await started.enter_async_context(hub)
        first, second, _ = redis.sentinels
        await first.kill()
        await second.kill()
        await has_warning(hub, FEW)
        await first.start()
        await has_none_again(hub, "most of the Sentinels answer again")


async def test_a_clock_of_redis_that_has_jumped_is_a_warning_until_it_is_set_right(tmp_path):
    clock = Clock(tmp_path)
    async with (
        OwnRedis(tmp_path, clock=clock) as redis,
        RunningHub(tmp_path / "data", "--redis", redis.url) as hub,
    ):
        clock.move(2 * HOUR)
        await has_warning(hub, APART)
        clock.move(-2 * HOUR)
        await has_none_again(hub, "the clocks of Redis and of this machine agree again")


# A certificate that ends --------------------------------------------------------------------------


def certificate_of(path: Path, days: int) -> datetime:
    """One of `localhost`, signed by itself, with its key; when it ends."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, path.stem)])
    begins = datetime.now(UTC).replace(microsecond=0)
    ends = begins + timedelta(days=days)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), days, begins, ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=True)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(made.public_bytes(Encoding.PEM) + secret)
    return ends


@pytest.mark.evidence
async def test_a_certificate_of_redis_that_ends_soon_is_a_warning_until_redis_has_a_new_one(
    tmp_path,
):
    soon, later = tmp_path / "soon.pem", tmp_path / "later.pem"
    ends, _ = certificate_of(soon, 1), certificate_of(later, 8)
    trusted = tmp_path / "trusted"
    trusted.write_bytes(soon.read_bytes() + later.read_bytes())
    context = context_with(soon)
    async with behind_tls(tmp_path, context, trusted) as (hub, _):
        said = f"the certificate of Redis ends on {ends:%Y-%m-%d at %H:%M} UTC: renew it, and "
        advice = "let Redis read it (CONFIG SET tls-cert-file FILE); "
        await has_warning(hub, f"{said}{advice}the hub cannot connect after that")
        context.load_cert_chain(later)
        await has_none_again(hub, "the certificate of Redis does not end soon any more")


async def test_a_certificate_that_nobody_looks_at_is_no_warning(tmp_path):
    async with (
        RedisServer(tmp_path) as redis,
        tls_before(redis.port, context_with(ENDED)) as port,
        connect(f"rediss://localhost:{port}?ssl_cert_reqs=none") as client,
    ):
        assert await why_certificate_ends(client) == ""


@asynccontextmanager
async def behind_tls(
    folder: Path, context: ssl.SSLContext, trusted: Path
) -> AsyncIterator[tuple[RunningHub, RedisServer]]:
    """A hub, and its Redis, which shows the certificate that the context has."""
    (folder / "redis").mkdir()
    async with RedisServer(folder / "redis") as redis, tls_before(redis.port, context) as port:
        url = f"rediss://localhost:{port}?ssl_ca_certs={trusted}"
        async with RunningHub(folder / "data", "--redis", url) as hub:
            yield hub, redis


def context_with(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """Who signed the one, and the other."""
    path = tmp_path / "trusted.pem"
    path.write_bytes(AUTHORITY.read_bytes() + b"\n" + ENDED.read_bytes().partition(b"Y-----\n")[2])
    return path


async def test_a_certificate_of_redis_that_ends_is_the_reason_why_the_hub_is_not_ready(
    tmp_path, trusted
):
    context = context_with(SERVER)
    async with behind_tls(tmp_path, context, trusted) as (hub, redis):
        context.load_cert_chain(ENDED)
        async with redis.client() as direct:
            await direct.client_kill_filter(_type="normal", skipme=True)
            await direct.client_kill_filter(_type="pubsub", skipme=True)

        async def is_refused() -> bool:
            status, answer = await hub.ask("GET", "/health/ready")
            return status == 503 and answer["detail"] == f"not writable: {RENEW}"

        await until(is_refused)
        ended = await rsnotify("status", hub=hub)
        said = f" is not ready: not writable: {RENEW}"
        assert (ended.status, ended.out.splitlines()[0].endswith(said)) == (1, True)
        assert f"WARNING not writable: {RENEW}" in hub.log.read_text()
        context.load_cert_chain(SERVER)

        async def is_over() -> bool:
            return (await hub.ask("GET", "/health/ready"))[0] == 200

        await until(is_over)
        assert "WARNING publishing works again after" in hub.log.read_text()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("status", 2),
        ("health", 1),
        ("publish dataset1 http://example.com/a", 2),
        ("subscribe dataset1 --count 1", 2),
        ("sets list", 2),
    ],
)
async def test_a_certificate_of_a_proxy_that_has_ended_is_named_by_every_command(line, status):
    async with tls_before(1, context_with(ENDED)) as port:
        url = f"https://localhost:{port}"
        environment = {"RSNOTIFY_URL": url, "SSL_CERT_FILE": str(ENDED)}
        ended = await rsnotify(*line.split(), RSNOTIFY_TOKEN="a" * 20, **environment)
    assert ended.status == status
    said = "certificate is not trusted (certificate has expired): its holder must renew it"
    assert said in ended.err
