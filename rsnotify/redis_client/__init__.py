"""Redis as a hub needs it: commands sent, their answers judged, one server or many.

`connect` makes a `Client` for an address: one server, one that Sentinels name, or a Cluster.
A command travels on a connection of `pool`, alone, in a pipeline, or as a `Script`; `round_trip`
waits for all answers; `failures` says what each error means: refused, not done, or not known.
Nothing here knows a journal, a set or a key's meaning. `README.md` says why it exists.
"""

from rsnotify.redis_client.address import Address
from rsnotify.redis_client.connection import Client, connect, each
from rsnotify.redis_client.round_trip import Script

__all__ = ["Address", "Client", "Script", "connect", "each"]
