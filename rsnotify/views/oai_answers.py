"""The answers of OAI-PMH, as XML.

Datestamps and response dates are in seconds: a position is told by the second that it lies in.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rsnotify.resourcesync.change import MICROSECONDS, Position
from rsnotify.resourcesync.xml_writer import escape
from rsnotify.views.dublin_core import dublin_core
from rsnotify.views.listing import Found
from rsnotify.views.oai_question import PREFIX, OaiFault, OaiQuestion

OPENING = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    ' xsi:schemaLocation="http://www.openarchives.org/OAI/2.0/'
    ' http://www.openarchives.org/OAI/2.0/OAI-PMH.xsd">'
)
CLOSING = b"</OAI-PMH>\n"
NOT_ECHOED = ("badVerb", "badArgument")
"""Where the request is wrong itself, its arguments are not repeated."""
FORMATS = (
    f"<metadataFormat><metadataPrefix>{PREFIX}</metadataPrefix>"
    "<schema>http://www.openarchives.org/OAI/2.0/oai_dc.xsd</schema>"
    "<metadataNamespace>http://www.openarchives.org/OAI/2.0/oai_dc/</metadataNamespace>"
    "</metadataFormat>"
)


class NextPage(NamedTuple):
    """What is said of the pages of a list: the token of the next one, which is empty on the last
    one; and how many records stand on the pages before."""

    token: str
    listed: int
    size: int | None = None  # of the whole list, if it is known
    expires: Position | None = None


def datestamp(position: int) -> str:
    """
    >>> datestamp(Position.parse("2026-11-20T21:34:00.999999Z"))
    '2026-11-20T21:34:00Z'
    """
    return str(Position(position // MICROSECONDS * MICROSECONDS))[:19] + "Z"


def render_answer(
    base_url: str, response_date: Position, content: bytes, question: OaiQuestion | None
) -> bytes:
    """The whole answer; without a question its arguments are not repeated."""
    asked = {} if question is None else {"verb": question.verb, **question.arguments}
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in asked.items())
    return b"".join(
        (
            OPENING.encode(),
            f"<responseDate>{datestamp(response_date)}</responseDate>".encode(),
            f"<request{attributes}>{escape(base_url)}</request>".encode(),
            content,
            CLOSING,
        )
    )


def render_fault(fault: OaiFault) -> bytes:
    return f'<error code="{fault.code}">{escape(fault.words)}</error>'.encode()


def render_identity(
    name: str, base_url: str, admin_email: str, earliest: Position, *, forgets: bool
) -> bytes:
    """`forgets`: whether a deletion that is told now will not be told some time."""
    said: Mapping[str, str] = {
        "repositoryName": name,
        "baseURL": base_url,
        "protocolVersion": "2.0",
        "adminEmail": admin_email,
        "earliestDatestamp": datestamp(earliest),
        "deletedRecord": "transient" if forgets else "persistent",
        "granularity": "YYYY-MM-DDThh:mm:ssZ",
        "compression": "gzip",
    }
    elements = (f"<{each}>{escape(value)}</{each}>" for each, value in said.items())
    return f"<Identify>{''.join(elements)}</Identify>".encode()


def render_formats() -> bytes:
    return f"<ListMetadataFormats>{FORMATS}</ListMetadataFormats>".encode()


def render_one(found: Found) -> bytes:
    return b"<GetRecord>%b</GetRecord>" % _record(found)


def render_list(verb: str, found: Iterable[Found], page: NextPage | None) -> bytes:
    """A list, or a page of one."""
    write = _header if verb == "ListIdentifiers" else _record
    opening, closing = f"<{verb}>".encode(), f"</{verb}>".encode()
    return b"".join((opening, *map(write, found), *_resumption(page), closing))


def _resumption(page: NextPage | None) -> Iterator[bytes]:
    if page is None:
        return
    expires = "" if page.expires is None else f' expirationDate="{datestamp(page.expires)}"'
    count = max(page.size or 0, page.listed)  # it is never told that there are none
    size = f' completeListSize="{count}"' if page.size is not None and count else ""
    attributes = f'{expires}{size} cursor="{page.listed}"'
    yield f"<resumptionToken{attributes}>{page.token}</resumptionToken>".encode()


def _record(found: Found) -> bytes:
    if found.entry is None:
        return b"<record>%b</record>" % _header(found)
    metadata = dublin_core(found.entry)
    return b"<record>%b<metadata>%b</metadata></record>" % (_header(found), metadata)


def _header(found: Found) -> bytes:
    status = b' status="deleted"' if found.entry is None else b""
    stamp = datestamp(found.changed).encode()
    return b"<header%b><identifier>%b</identifier><datestamp>%b</datestamp></header>" % (
        status,
        found.loc,
        stamp,
    )
