"""The whole state of a set, sent at once: read, staged, compared, and published as changes.

`load_endpoint` takes the request, `load_formats` reads it piece by piece,
`load_store` keeps the pieces in Redis and compares them there (`loads.lua`), `load` decides what
may be deleted, and `load_chores` does what was decided to its end, whoever began it.
"""
