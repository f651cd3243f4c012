"""The private redis-server of an embedded hub: found, started, kept alive and stopped.

`server`        its process; `guard` ends it together with the hub
`binaries`      which server is started
`directory`     the data directory, and the lock on it
`engine_note`   which engine wrote the data there
"""

from rsnotify.process.embedded_redis.server import EmbeddedRedis

__all__ = ["EmbeddedRedis"]
