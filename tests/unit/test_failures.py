"""What each failure of Redis means to whoever asked, wherever the client library left its code."""

import ssl

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import AuthenticationError, ResponseError
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as AnswerLate

from rsnotify.errors import RedisRefuses, StoreFull, TryAgain
from rsnotify.redis_client.failures import FULL, LASTING, PASSING, judge_error, judge_unforeseen


def in_script(text: str) -> str:
    """As Redis 7 says it of a command in a script."""
    return f"{text} script: a7f30a77, on @user_script:12."


def in_old_script(text: str) -> str:
    """As Redis 6 did."""
    return f"ERR Error running script (call to f_a7f30a77): @user_script:12: -{text}"


def in_transaction(text: str) -> str:
    return f"EXECABORT Transaction discarded because of: {text}"


@pytest.mark.parametrize("code", [*PASSING, *FULL, *LASTING])
@pytest.mark.parametrize(
    "said",
    [str, in_script, in_old_script, in_transaction],
    ids=lambda said: said.__name__,
)
def test_a_code_is_known_wherever_it_stands(code, said):
    error = ResponseError(said(f"{code} Redis can't do it now."))
    kind = TryAgain if code in PASSING else StoreFull if code in FULL else RedisRefuses
    assert type(judge_error(error)) is kind


def read(text: str) -> Exception:
    """As the client library reads it."""
    error: Exception = BaseParser.parse_error(text)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (read("LOADING Redis is loading the dataset in memory"), TryAgain),
        (read("OOM command not allowed when used memory > 'maxmemory'."), StoreFull),
        (read("READONLY You can't write against a read only replica."), TryAgain),
        (read("CLUSTERDOWN The cluster is down"), TryAgain),
        (read("MASTERDOWN Link with MASTER is down"), TryAgain),
        (read("TRYAGAIN Multiple keys request during rehashing of slot"), TryAgain),
        (read(in_transaction("NOREPLICAS Not enough good replicas to write.")), TryAgain),
        (read("MOVED 3999 127.0.0.1:6381"), RedisRefuses),
        (read("ASK 3999 127.0.0.1:6381"), RedisRefuses),
        (read("CROSSSLOT Keys in request don't hash to the same slot"), RedisRefuses),
        (read("WRONGPASS invalid username-password pair or user is disabled."), RedisRefuses),
        (read("NOAUTH Authentication required."), RedisRefuses),
        (read("ERR invalid password"), RedisRefuses),
        (read("NOPERM this user has no permissions to run the 'set' command"), RedisRefuses),
        (read(in_script("ERR The user executing the script can't run this command")), RedisRefuses),
        (read(in_script("ERR ACL failure in script: User a has no permissions")), RedisRefuses),
        (AuthenticationError("Invalid Username or Password"), RedisRefuses),
        (ConnectionLost("Connection closed by server."), TryAgain),
        (AnswerLate("Timeout reading from socket"), TryAgain),
        (ConnectionRefusedError(111, "Connection refused"), TryAgain),
    ],
    ids=str,
)
def test_what_the_client_library_makes_of_it_is_known(error, expected):
    assert type(judge_error(error)) is expected


@pytest.mark.parametrize(
    "error",
    [
        ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
        ResponseError(in_script("WRONGTYPE Operation against a key")),
        ResponseError("ERR value is not an integer or out of range"),
        read("ERR unknown command 'XADD'"),
        read("NOSCRIPT No matching script."),
    ],
)
def test_damage_and_bugs_stay_what_they_are(error):
    assert judge_error(error) is error


def test_what_a_peer_is_told_holds_nothing_of_the_command():
    said = judge_error(ResponseError("MISCONF Errors writing to the AOF file of set 'secret'"))
    assert str(said) == "the journal cannot be used: Redis cannot write its data to disk (MISCONF)"


def lost(cause: Exception) -> ConnectionLost:
    """As the client library wraps what happened to a socket."""
    error = ConnectionLost("Connection lost")
    error.__cause__ = cause
    return error


def untrusted(code: int, message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, message
    return error


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (untrusted(19, "self-signed certificate in chain"), "add ?ssl_ca_certs=FILE"),
        (untrusted(10, "certificate has expired"), "has expired): it must be renewed"),
        (untrusted(62, "Hostname mismatch"), "must name the host as the certificate does"),
        (untrusted(64, "IP address mismatch"), "must name the host as the certificate does"),
        (ssl.SSLError(1, "[SSL] tlsv13 alert certificate required"), "add ?ssl_certfile=FILE"),
        (ssl.SSLError(1, "[SSL] sslv3 alert handshake failure"), "add ?ssl_certfile=FILE"),
        (ssl.SSLError(1, "[SSL] tlsv1 alert unknown ca"), "must be signed by an authority"),
        (ssl.SSLError(1, "[SSL] sslv3 alert bad certificate"), "check its ssl_certfile"),
        (ssl.SSLError(1, "[SSL] sslv3 alert certificate revoked"), "check its ssl_certfile"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "speaks no TLS"),
    ],
)
def test_what_tls_refuses_lasts_and_says_how_to_mend_it(cause, said):
    judged = judge_error(lost(cause))
    assert isinstance(judged, RedisRefuses)
    assert said in judged.detail


def test_other_trouble_with_tls_may_pass():
    assert (
        type(judge_error(lost(ssl.SSLError(8, "EOF occurred in violation of protocol"))))
        is TryAgain
    )


def test_what_was_judged_before_is_not_judged_again():
    judged = RedisRefuses("the Sentinels know no primary")
    assert judge_error(lost(judged)) is judged


def test_a_password_that_is_wrong_at_the_next_connection_is_named():
    error = ConnectionLost("invalid username-password pair or user is disabled.")
    error.__cause__ = AuthenticationError("invalid username-password pair")
    assert "check them in its address (WRONGPASS)" in str(judge_error(error))


def test_a_connection_that_closes_as_it_is_written_to_is_a_failure_that_passes():
    text = "unable to perform operation on <UnixTransport closed=True 0x7f>; the handler is closed"
    assert type(judge_error(RuntimeError(text))) is TryAgain


def test_any_other_runtime_error_is_a_bug():
    bug = RuntimeError("dictionary changed size during iteration")
    assert judge_error(bug) is bug


@pytest.mark.parametrize("error", [ValueError("no number"), ResponseError("no code"), KeyError(1)])
def test_whatever_a_parser_raises_is_a_journal_that_cannot_be_used(error):
    assert isinstance(judge_unforeseen(error), TryAgain)
