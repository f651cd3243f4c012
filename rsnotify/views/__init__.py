"""The journal by other protocols, read-only: OAI-PMH 2.0, Atom, IIIF.

A harvest goes through these: `oai_question` (what is asked), `harvest` (which part of the set's
state or journal answers it, a page at a time), `oai_answers` (how OAI-PMH writes that), and
`oai_endpoint` between them and HTTP. Where a list goes on stands in its resumption token
(`oai_token`), so nothing is kept for a harvester.

Feeds and activities are made of pages of the journal that keep their content (`journal_pages`), as
`atom` and `activities` write them; `paged_views` is between them and HTTP.
"""
