"""Redis as a hub needs it: commands sent, their answers judged, one server or many.

`connect` makes a `Client` for an address: one server, one that Sentinels name, or a Cluster.
A `client` sends commands on a connection of its `pool`, alone, in a pipeline, or as a `Script`, and
waits for all answers; `failures` says what each error means: refused, not done, or not known.
Nothing here knows a journal, a set or a key's meaning. `README.md` says why it exists.
"""

from rsnotify.redis_client.address import Address
from rsnotify.redis_client.client import Replicas, Script, each
from rsnotify.redis_client.connection import Client, connect

__all__ = ["Address", "Client", "Replicas", "Script", "connect", "each"]
