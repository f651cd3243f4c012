"""HTTP as a hub needs it: an ASGI server protocol with deadlines and bounds, a router, answers.

Bytes reach `protocol`, which has `exchange` read the requests and run the ASGI application for
each; `endpoints` finds its endpoint, reads its body and makes its answer.
`bounds` says what peers may take: connections, bytes and time. Nothing here knows sets, channels or
Redis. `README.md` says why it exists.
"""

__all__ = ["bounds", "endpoints", "protocol"]
