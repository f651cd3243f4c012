"""The private redis-server of an embedded hub: found, started, kept alive and stopped.

`server`        its process, and the guard that ends it together with the hub
`binaries`      which server is started, and which engine wrote the data
`directory`     the data directory, and the lock on it
"""

from rsnotify.process.embedded_redis.server import EmbeddedRedis

__all__ = ["EmbeddedRedis"]
