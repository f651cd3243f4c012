"""Channels: send each notification to every connected Destination, by WebSocket or SSE.

`admission.Channels` is the face. A handshake (`handshake`) or request (`event_stream`) is admitted
(`admission`); the connection becomes a reader (`reader`), which joins a channel (`channel`) or
several (`several`). All get the same bytes (`frames`). Nothing here is queued for a reader: it has
a cursor.
"""
