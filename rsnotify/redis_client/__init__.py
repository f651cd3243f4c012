"""Redis as a hub needs it: commands sent, their answers judged, one server or many.

`connection` makes a `client` for an address: one server, one that Sentinels name, or a Cluster.
A command travels on a connection of `pool`, alone, in a `pipeline`, or as a `script`; `round_trip`
waits for all answers; `failures` says what each error means: refused, not done, or not known.
Nothing here knows a journal, a set or a key's meaning.
"""
