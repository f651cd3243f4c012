"""The journals: what was published, in order, and everything that follows it.

`journals.Journals` is the face. A publish goes `journals` → `appends` → `append.lua`, and is
answered. `following` pushes what was appended here to the feeds (`feed`), from memory; the bell
(`coordination`) wakes the other processes, whose `following` reads it first. A reader that is
behind asks `reading`: from memory, from the stream, or from packed windows. `witness`
is what a process knows of a journal, and `losses` looks for what Redis has lost of it, and says so.
The journals know nothing of who reads them: neither channels, nor WebSub, nor documents.
"""
