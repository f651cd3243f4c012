"""HTTP as a hub needs it: an ASGI server protocol with deadlines and bounds, a router, answers.

Bytes reach `protocol`, which has `request_reader` read the requests and an `exchange` run the ASGI
application for each; `endpoints` finds its endpoint, reads its body and makes its answer.

What peers may take is bounded: connections by `connection_limits`, what they send by `input_turns`,
what they do not read by `unread_output`, and time by `deadlines`. `sockets` asks the kernel, and
`extensions` is what an application may know of our server beyond ASGI. Nothing here knows sets,
channels or Redis. `README.md` says why it exists.
"""

__all__ = [
    "connection_limits",
    "endpoints",
    "extensions",
    "input_turns",
    "protocol",
    "sockets",
]
