"""Dumps of a copy: Resource Dumps, Change Dumps and their archives, in a folder or an object store.

`dump.make` reads what the mirror knows in one transaction (`copy_reader`), decides which of the
packages that there are stay as they are and which are written anew (`parts`), writes those
(`package_writer`, `zip_records`), says how they differ from the last (`changes`), and
writes the documents (`dump_documents`) of a new generation, which takes the place of the old one by
one rename (`generations`, which copies all of it into an object store). Nothing here knows a hub.
"""
