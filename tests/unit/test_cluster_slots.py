"""The keys of a command in a Redis Cluster and their slot; and how a question to its nodes ends."""

import asyncio

import pytest

from rsnotify.coordination import keys
from rsnotify.journal.call import call_keys
from rsnotify.redis_client.address import Address
from rsnotify.redis_client.client import WAITED
from rsnotify.redis_client.cluster import (
    HUB_KEY,
    SLOTS,
    Nodes,
    routed_to,
    slot_of,
    tagged,
    waited_in,
)
from rsnotify.resourcesync.notification import KINDS, RESERVED, ChannelName
from tests.support.stream_server import StreamServer

KEYS_OF_NO_SET = (
    *(keys.DATA_ID, keys.SETS, keys.SETS_VERSION, keys.SETS_CHANGED),
    *(keys.SETS_ANNOUNCED, keys.LOADS, keys.CLOCK_HISTORY, keys.WRITABLE, WAITED),
    *(keys.TOKENS, keys.TOKENS_USED, keys.DELIVERERS),
    keys.pending_of("::1"),
)


def test_a_slot_is_the_one_that_redis_computes():
    assert slot_of("foo") == slot_of("rsnotify:{foo}:change") == 12182  # CLUSTER KEYSLOT foo
    assert 0 <= slot_of("") < SLOTS


def test_the_records_of_all_sets_are_in_one_slot_which_is_no_sets():
    assert {slot_of(tagged(key)) for key in KEYS_OF_NO_SET} == {slot_of(HUB_KEY)}
    assert len({tagged(key) for key in KEYS_OF_NO_SET}) == len(KEYS_OF_NO_SET)
    assert "hub" in RESERVED  # so that no set has keys of the same names


@pytest.mark.parametrize("name", ["a", "dataset1", "a.b-c_d"])
def test_all_keys_of_a_set_keep_their_names_and_are_in_one_slot(name):
    of_set = [key for kind in KINDS for key in call_keys(ChannelName(name, kind))]
    of_set += [keys.claim(name, "load"), keys.snapshot(name), keys.never(name)]
    assert [tagged(key) for key in of_set] == of_set
    assert {slot_of(key) for key in of_set} == {slot_of(f"{{{name}}}")}
    assert slot_of(waited_in(of_set[0])) == slot_of(of_set[0])


@pytest.mark.parametrize(
    ("command", "as_sent", "key"),
    [
        (("GET", "rsnotify:data"), ("GET", "rsnotify:{hub}:data"), "rsnotify:{hub}:data"),
        (("HGET", b"rsnotify:{a}:x", "f"), ("HGET", "rsnotify:{a}:x", "f"), "rsnotify:{a}:x"),
        (
            ("MGET", "rsnotify:data", "rsnotify:sets"),
            ("MGET", "rsnotify:{hub}:data", "rsnotify:{hub}:sets"),
            "rsnotify:{hub}:data",
        ),
        (
            ("EVALSHA", "sha", 2, "rsnotify:{a}:x", "rsnotify:{a}:y", "rsnotify:z"),
            ("EVALSHA", "sha", 2, "rsnotify:{a}:x", "rsnotify:{a}:y", "rsnotify:z"),
            "rsnotify:{a}:x",
        ),
        (("PUBLISH", "rsnotify:bell", "x"), ("PUBLISH", "rsnotify:bell", "x"), None),
        (("CONFIG GET", "maxmemory"), ("CONFIG", "GET", "maxmemory"), None),
    ],
)
def test_keys_are_tagged_and_nothing_else(command, as_sent, key):
    found, _, one = routed_to(command)
    assert found == as_sent
    assert slot_of(one) == slot_of(HUB_KEY if key is None else key)


def test_keys_of_two_slots_in_one_command_are_a_mistake():
    with pytest.raises(ValueError, match="several slots"):
        routed_to(("DEL", "rsnotify:{a}:x", "rsnotify:{b}:x"))


async def test_no_node_is_asked_once_all_are_closed():
    """Who waits for the answer of the nodes may go; the question goes on, and ends with them."""
    connected, ended = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with StreamServer(never_answer) as server:
        port = server.port
        nodes = Nodes(Address.parse(f"redis+cluster://127.0.0.1:{port}"))
        nodes.masters.append(nodes.at(("127.0.0.1", port)))  # if these fail, the seeds are asked
        before = asyncio.all_tasks()
        waiting = asyncio.create_task(nodes.refresh())
        await connected.wait()
        waiting.cancel()
        await nodes.aclose()
        await ended.wait()
        left = asyncio.all_tasks() - before - {waiting}
        assert not [task for task in left if "question" in task.get_name()]
