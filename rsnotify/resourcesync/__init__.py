"""ResourceSync's formats and rules: what a hub, a Source and a Destination have in common.

`change`             what happened to a resource, and a position in a journal
`values`             what a single value must look like
`xml_writer`         the documents' parts, and how they are written
`xml_reader`         documents read; `xml_guard` refuses what would harm the parser
`notification`       what travels on a channel
`change_rules`       what a published change must observe
`validation/`        whole documents held against the specifications

Rules that hold here: no socket, clock, file or server; of the project only `rsnotify.errors` is
imported. The client is installed with nothing more of the hub than this.
"""
