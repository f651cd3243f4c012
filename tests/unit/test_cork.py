"""Writes gathered: how many calls they become, and that nothing is held back for ever."""

import asyncio

from rsnotify.serving.cork import GATHERED_BYTES, Corked


class Transport(asyncio.Transport):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append("close")


def corked() -> tuple[Corked, list[bytes | str]]:
    transport = Transport()
    return Corked(transport, asyncio.get_running_loop()), transport.told


async def test_what_is_written_in_one_turn_leaves_in_one_call() -> None:
    transport, told = corked()
    transport.write(b"head")
    transport.write(b"body")
    assert told == []
    await asyncio.sleep(0)
    assert told == [b"headbody"]


async def test_much_is_not_held_back() -> None:
    transport, told = corked()
    transport.write(b"x" * (GATHERED_BYTES + 1))
    assert len(told) == 1


async def test_what_was_written_leaves_before_the_end() -> None:
    transport, told = corked()
    transport.write(b"last words")
    transport.close()
    assert told == [b"last words", "close"]
    await asyncio.sleep(0)
    assert len(told) == 2
