"""Who may do what: tokens, their rights, and how often wrong ones may be tried.

A request's token goes to `access`, which asks `tokens` and answers what it may do with which set.
"""
