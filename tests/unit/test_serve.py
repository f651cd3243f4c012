"""How a hub process ends."""

import asyncio

from rsnotify.serving.house import end


async def test_a_loop_that_swallows_its_cancellation_ends_all_the_same() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    loop = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end([loop])
    assert loop.cancelled()
