"""Follows Sources of any kind and publishes what changes there to sets of a hub.

sources    an adapter reads: a whole state, or the changes after a cursor
comparison what is new, what is gone, and may so much be gone?
memory     one transaction: what the Source has, and what is to be published, as numbered batches
target     each batch under a key made of its number and content; then it is forgotten
"""
