"""Channels: send each notification to every connected Destination, by WebSocket or SSE.

`channels.Channels` is the face. Who comes to `websocket_endpoint` or `event_stream` is admitted
(`admission`, `requested_channels`, `reader_limits`); `handshake` gives a WebSocket's connection
away. The connection becomes a `reader` that writes to its transport (`transport_reader`,
`socket_reader`), and joins a `channel` or `several`. All get the same bytes (`frames`); what they
send is read by `received_frames`. `keepalive` finds readers that are gone or slow, `reader_input`
those that send too much, `revocations` those whose token has ended. Nothing here is queued for a
reader: it has a cursor.
"""
