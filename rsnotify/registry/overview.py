"""What Redis has of every set, in numbers, for those who watch the hub."""

from collections.abc import Sequence
from functools import partial
from time import time
from typing import Any, NamedTuple

from rsnotify.journal import keys
from rsnotify.journal.window import DAY, Window, changes_since
from rsnotify.redis_client import Client, each
from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.notification import ChannelName

AT_ONCE = 200  # sets, in one round trip


class SetNumbers(NamedTuple):
    """What is kept of a set. Its documents are those of the change channel."""

    changes: int  # in the stream
    first: Position  # where the stream begins
    head: Position  # the newest change
    change_lists: int  # closed ones that can be pulled
    resources: int | None  # of the newest snapshot; None if there is none
    snapshot: Position | None  # when it was completed
    today: int | None  # changes since 0:00 UTC; None if Change Lists do not end there


class Overview:
    """Reads the numbers of many sets."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, set_names: Sequence[str]) -> dict[str, SetNumbers]:
        """The numbers of these sets; those that cannot be read are left out."""
        found: dict[str, SetNumbers] = {}
        for start in range(0, len(set_names), AT_ONCE):
            found |= await self._some(set_names[start : start + AT_ONCE])
        return found

    async def _some(self, set_names: Sequence[str]) -> dict[str, SetNumbers]:
        now = int(time() * MICROSECONDS)
        midnight = now - now % DAY
        pipeline = self._client.pipeline(transaction=False)
        for name in set_names:
            channel = ChannelName(name, "change")
            pipeline.xlen(keys.stream(channel))
            pipeline.hmget(keys.record(channel), "first", "head", "window_from", "window_count")
            pipeline.zcard(keys.windows(channel))
            pipeline.zrangebyscore(keys.windows(channel), f"({midnight}", "+inf")
            pipeline.hmget(keys.snapshot(name), "resources", "completed")
        answers = await pipeline.execute(raise_on_error=False)
        rows = [answers[at : at + 5] for at in range(0, len(answers), 5)]
        numbers = partial(_numbers, midnight)
        read = zip(set_names, each(rows, numbers), strict=True)
        return {name: row for name, row in read if isinstance(row, SetNumbers)}


def _numbers(midnight: int, row: Sequence[Any]) -> SetNumbers:
    for answer in row:
        if isinstance(answer, Exception):
            raise answer
    changes, (first, head, *open_list), change_lists, closed, (resources, completed) = row
    begin, count = map(int, open_list)
    return SetNumbers(
        changes=changes,
        first=Position(int(first)),
        head=Position(int(head)),
        change_lists=change_lists,
        resources=None if resources is None else int(resources),
        snapshot=None if completed is None else Position(int(completed)),
        today=changes_since(midnight, int(head), begin, count, map(Window.parse, closed)),
    )
