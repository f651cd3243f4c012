"""What is known of a resource, in Dublin Core: the format that OAI-PMH has everywhere.

It is made of the entry that a Resource List has of the resource. What stands there is escaped, and
may stand in XML as it is.
"""

import re

OPENING = (
    b'<oai_dc:dc xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/"'
    b' xmlns:dc="http://purl.org/dc/elements/1.1/"'
    b' xsi:schemaLocation="http://www.openarchives.org/OAI/2.0/oai_dc/'
    b' http://www.openarchives.org/OAI/2.0/oai_dc.xsd">'
)
CLOSING = b"</oai_dc:dc>"
ELEMENTS = {b"via": b"source"}
"""Of links by their relation; all others are relations of the resource."""

_LOC = re.compile(rb"<loc>([^<]*)</loc>")
_LASTMOD = re.compile(rb"<lastmod>([^<]*)</lastmod>")
_TYPE = re.compile(rb'<rs:md\b[^>]*? type="([^"]*)"')
_LINK = re.compile(rb'<rs:ln rel="([^"]*)" href="([^"]*)"')


def dublin_core(entry: bytes) -> bytes:
    """The Dublin Core of a resource.

    >>> dublin_core(b"<url><loc>a:b</loc></url>")[len(OPENING) : -len(CLOSING)]
    b'<dc:identifier>a:b</dc:identifier>'
    """
    return b"".join(
        (
            OPENING,
            *(_element(b"identifier", each) for each in _LOC.findall(entry)),
            *(_element(b"date", each) for each in _LASTMOD.findall(entry)),
            *(_element(b"format", each) for each in _TYPE.findall(entry)),
            *(_element(ELEMENTS.get(rel, b"relation"), href) for rel, href in _LINK.findall(entry)),
            CLOSING,
        )
    )


def _element(name: bytes, text: bytes) -> bytes:
    return b"<dc:%b>%b</dc:%b>" % (name, text, name)
