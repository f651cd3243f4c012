"""The private redis-server of an embedded hub: found, started, kept alive and stopped.

`server` is its process, `guard` ends it with the hub, `binaries` chooses what is started,
`directory` is where it runs and who holds that, `origin` knows which engine wrote the data there.
What Redis keeps is not known here.
"""

from rsnotify.storage.embedded_redis.server import EmbeddedRedis

__all__ = ["EmbeddedRedis"]
