"""Requests and rights: what a request asks for, with which token, and what that token may do.

`base_url`, `sent_token` and `query` read a request for all rooms above. `access` asks `tokens`, or
`jwts`, whether its token counts, and answers with a `bearer`, who says what may be done with which
set; `throttle` says how often a wrong token may be tried, and how often a right one may publish.
`cors` lets pages of other origins read the answers.
"""
