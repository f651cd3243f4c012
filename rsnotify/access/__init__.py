"""Requests and rights: what a request asks for, with which token, and what that token may do.

`requests` reads the addresses, the token and the query of a request, for all rooms above. `access`
asks `tokens`, or `jwts`, and answers what may be done with which set, and how often a wrong token
may be tried.
"""
