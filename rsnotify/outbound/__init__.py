"""HTTP calls to addresses that strangers have named: callbacks, documents to check, key sets.

`dialler` makes them, and nobody else connects to such an address; `bounded_answer` ends an answer
that is too long; `answer` is what was answered.
"""
