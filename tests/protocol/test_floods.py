"""Strangers who send without end to a running hub: they are closed, logged once and counted.
Those who ask and leave are not read."""

import socket
import struct
import sys
from signal import SIGCONT, SIGSTOP

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rsnotify.channels.reader_input import FRAMES_PER_SECOND
from tests.support.raw import PING, frame, raw_channel
from tests.support.running import RunningHub, until

FLOOD = frame(PING) * (FRAMES_PER_SECOND + 1)  # unit/test_reader_input.py has the others


async def numbers(hub: RunningHub) -> dict[tuple[str, str], float]:
    """The metrics, by name and transport."""
    async with aiohttp.ClientSession() as session, session.get(f"{hub.url}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    return {
        (sample.name, sample.labels.get("transport", "")): sample.value
        for family in families
        for sample in family.samples
    }


async def test_a_reader_that_sends_too_much_is_closed_logged_and_counted(hub):
    async with raw_channel(hub.channel()) as honest, raw_channel(hub.channel()) as channel:
        await channel.send(FLOOD)
        assert await channel.closed_with() == (1008, "readers may not send so much")
        await hub.publish("http://example.com/a")
        assert b"http://example.com/a" in await honest.text()

    async def is_counted() -> bool:
        return (await numbers(hub))["rsnotify_floods_total", "websocket"] == 1

    await until(is_counted)
    counted = await numbers(hub)
    assert 0 < counted["rsnotify_received_bytes_total", "websocket"] <= len(FLOOD)
    assert counted["rsnotify_received_frames_total", ""] <= FRAMES_PER_SECOND + 1
    line = "closing a connection (websocket) of 127.0.0.1: it sends too much"
    assert hub.log.read_text().count(line) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="no TCP_INFO: only Linux tells of it")
async def test_nothing_is_read_of_hundreds_who_ask_and_leave_while_the_hub_is_busy(tmp_path):
    asked = b"GET /dataset1/changelist.xml HTTP/1.1\r\nHost: h\r\n\r\n"
    async with RunningHub(tmp_path / "data") as hub:
        before = (await numbers(hub))["rsnotify_received_bytes_total", "http"]
        own = (await numbers(hub))["rsnotify_received_bytes_total", "http"] - before
        assert hub.process is not None
        hub.process.send_signal(SIGSTOP)
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", hub.port)) as stranger:
                stranger.sendall(asked)
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        hub.process.send_signal(SIGCONT)
        read = (await numbers(hub))["rsnotify_received_bytes_total", "http"] - before
        assert read == 2 * own
