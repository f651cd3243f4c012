"""The hub in a simulated world: time is virtual, and everything that may vary comes from a seed.

    make simulate                       as many histories as fit into a minute
    make simulate SEED=4711             the same history again, with its story

`world.py` holds the hosts, `network.py` what is between them, `engine.py` a real Redis that takes
its time from the world. `scenarios.py` says what happens in a history, `judge.py` what must be true
of it. What is simulated and what is not is in `docs/simulation.md`.
"""
