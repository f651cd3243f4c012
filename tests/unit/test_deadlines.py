"""Deadlines on a real event loop that was busy when one was due."""

import asyncio
import socket
import time

import pytest
import uvloop

from rsnotify.http.deadlines import Deadlines
from tests.support.running import until


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_a_peer_has_sent_in_time_is_read_before_its_deadline(loop):
    happened: list[str] = []

    async def are_both_done() -> bool:
        return len(happened) == 2

    async def run() -> None:
        ours, peer = socket.socketpair()

        class Reading(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                if data == b"makes it busy":
                    Deadlines(tick_seconds=0.01).set(lambda: happened.append("is due"), 0)
                    peer.send(b"has sent")
                    time.sleep(0.05)  # until the timer is due
                else:
                    happened.append(data.decode())

        with peer:
            transport, _ = await asyncio.get_running_loop().create_connection(Reading, sock=ours)
            peer.send(b"makes it busy")
            await until(are_both_done)
            transport.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())
    assert happened == ["has sent", "is due"]
