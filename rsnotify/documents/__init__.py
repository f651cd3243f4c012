"""What Destinations pull: discovery, Change Lists, Resource Lists, archives.

A request names a set and a document (`responses`); what it says comes from the journal
(`changelists`, `pages`) or from a snapshot (`resourcelists`); `responses` sends it,
with conditions and compression. `chores` runs beside: `window_chores` closes and packs Change
Lists, `snapshot_chores` takes snapshots, `old_history` deletes; `due_sets` says of which sets.
`announcements` publishes on the framework channel that documents have changed.
"""
