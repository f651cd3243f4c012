"""WebSub as far as it needs no socket.

`protocol`           requests, verification, links, signatures
`subscription`       what is kept of a subscription, and what an answer does to it
`slots`              whose turn it is to be called
`retry_schedule`     when to try again
`addresses`          which addresses may be called
"""
