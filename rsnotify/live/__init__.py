"""What one process has of the journals: it follows them, and gives what is new to whoever reads.

`journals.Journals` is the face. A publish goes `journals` → `journal.appends` → `append.lua`, and
is answered. `following` pushes what was appended here to the feeds (`feed`), from memory; the bell
wakes the other processes, whose `following` reads it first, and `checking` finds what the bell has
missed. A reader that is behind asks `reading`: from memory, from the stream, or from packed
windows. `losses` looks for what Redis has lost of what this process knows (`journal.witness`), and
says so. Nothing here knows who reads: neither channels, nor WebSub, nor documents.
"""
