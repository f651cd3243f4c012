"""What the hub can decide without waiting: no socket, clock, chance or Redis.

`submission`         a posted body, read and judged
`window`             how a journal is cut into Change Lists
`documents`          what each document contains that can be pulled, and where it is
`gzip_parts`         entries compressed once, for any document
`resource_state`     a set's current state as entries of its Resource List
`tail`, `recent`     notifications kept in memory; `budget` says who gives up memory first
`clock`              clocks of other machines, which may jump
`clock_history`      how old things have been observed to grow
`token_secret`       a token's secret text, and what stands for it
`token_throttle`     which addresses have sent too many wrong tokens
`websub/`            WebSub's requests, subscriptions, queue and retries
"""
