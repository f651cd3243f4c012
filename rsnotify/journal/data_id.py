"""Which data a Redis has: an emptied one gets another name than it had."""

import secrets

from rsnotify.journal import keys
from rsnotify.redis_client.connection import Client


async def new_data_id(client: Client) -> bytes:
    """Name the data of an empty Redis, unless another process has done it just now."""
    await client.set(keys.DATA_ID, secrets.token_hex(8), nx=True)
    found: bytes = await client.get(keys.DATA_ID)
    return found
