"""rsnotify: a push-notification hub for ResourceSync.

A Source posts changes. The hub appends them to a journal in Redis and answers. Everything that
leaves the hub, by WebSocket, by WebSub or as a Change List, is a cursor moving over that journal.
A change's `datetime` is its position in the journal, so a Destination that remembers the `until`
of the last notification it read can resume anywhere, by any transport, and see at once if it
missed something.
"""

__version__ = "0.1.0"
