"""What a running hub tells those who watch it."""

import asyncio
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from rsnotify.watching.metric_table import METRICS
from tests.receivers import Receiver
from tests.running import TOKEN, RunningHub, until

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def metrics(hub: RunningHub, token: str | None = None) -> tuple[int, Numbers]:
    """The status, and each number by its name and labels."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{hub.url}/metrics") as answer,
    ):
        families = text_string_to_metric_families(await answer.text()) if answer.ok else ()
        found = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
        return answer.status, found


def total(numbers: Numbers, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(number for (each, its), number in numbers.items() if each == name and wanted <= its)
