"""HTTP as a hub needs it: an ASGI server protocol with deadlines and bounds, a router, answers.

Bytes reach `protocol`, which has `request_parser` read them; `exchange` runs the ASGI application
for each request; `routing` finds its endpoint; `answers` turns errors into answers. `deadlines`
and `connections` bound what peers may hold. Nothing here knows sets, channels or Redis.
"""
