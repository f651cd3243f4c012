"""The formats and rules of ResourceSync that a hub, a Source and a Destination share.

`change`             a change, a position in a journal, and what each value may be
`xml_writer`         what documents consist of, and how they are written
`json_writer`        how they are written as JSON, from that XML
`xml_reader`         how documents are read; `xml_structure` refuses harmful ones before
`notification`       what travels on a channel: a change as it stands in documents and in Redis
`change_rules`       what a published change must observe
`document_rules`     whole documents checked against the specifications, which are `tables`

No socket, clock, file or server here; of the project, only `rsnotify.errors` is imported.
The client needs nothing else of the hub.
"""
