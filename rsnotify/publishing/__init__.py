"""What Sources send: changes (`intake`) and whole states of a set (`loads`).

A body is read and judged (`bodies`), becomes a submission, and the hub appends it to the journal.
Nothing here waits for a reader.
"""
