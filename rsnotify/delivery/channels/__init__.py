"""The channels: each notification to every Destination that is connected, by WebSocket or SSE."""
