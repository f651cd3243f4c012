"""The hub in memory: what other rooms use of it is `Hub`."""

from rsnotify.hub.hub import Hub

__all__ = ["Hub"]
