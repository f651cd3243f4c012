"""The part of WebSub that needs no socket.

`protocol`           requests, verification, links, signatures
`subscription`       a subscription, its position, and what an answer changes
`slots`              how many calls at once, and whose turn it is
`retry_schedule`     when a failed callback is called again
"""
