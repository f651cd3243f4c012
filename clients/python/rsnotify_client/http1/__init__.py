"""HTTP/1.1 over blocking sockets: a request, the head of its answer, its body piece by piece.

Rules that hold here: what a peer sends before the body is bounded in bytes, lines and time, and
each wait for more in time; a connection serves again only if the answer was read to its end. Any
thread may use this, each its own connection. Nothing here knows what is fetched or why.
"""
