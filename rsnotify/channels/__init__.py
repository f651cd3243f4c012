"""Channels: send each notification to every connected Destination, by WebSocket or SSE."""
