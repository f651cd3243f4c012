"""What Destinations pull: discovery, Change Lists, Resource Lists, archives.

A request names a set and a document (`responses`); what it says comes from the journal
(`changelists`, `pages`) or from a snapshot (`resourcelists`); `responses` sends it,
with conditions and compression. `chores` closes and packs Change Lists and takes snapshots;
`announcements` publishes on the framework channel that documents have changed.
"""
