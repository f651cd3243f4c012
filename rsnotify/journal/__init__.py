"""The journals in Redis: append to them (`appends`, `call`), read them (`journal_store`, `rows`),
cut them into windows (`window`, `windows`), pack these (`gzip_parts`), count bytes (`usage`).

`witness` is what a process knows to have been in one. Nothing else here remembers anything.
"""
