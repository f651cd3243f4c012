"""Durable Streams: each channel of a set as a log that any HTTP client, and any cache, can read.

`streams.Streams` is the face, of the reading half of that protocol alone. The offset of a stream is
a position. A request goes `stream_query` (what is asked for) → access → `live.reading`, and is
answered with a chunk of changes; `stream_headers` decides what caches may keep of it. Nothing here
is stored, and nothing here publishes.
"""
