"""The journals: what was published, in order, and everything that follows it.

`hub.Hub` is the face. A publish goes `hub` → `appends` → `append.lua` and is answered. The bell
(`coordination`) wakes every process, whose `following` reads what is new and pushes it to the feeds
(`feed`); a reader that is behind asks `reading`: from memory, from the stream, or from packed
windows.
`healing` and `repairing` notice that Redis has lost changes, and put them back.
The journals know nothing of who reads them: neither channels, nor WebSub, nor documents.
"""
