"""What is sent in the place of a resource, a login page above all, where no digest can say it."""

import hashlib
import re
from mimetypes import guess_type
from urllib.parse import urlsplit

from rsnotify_client.network import without_login
from rsnotify_client.resource import SourceResource, digests
from rsnotify_client.transport import Answer
from rsnotify_mirror.plan import media_type

HTML = ("text/html", "application/xhtml+xml")
UNTYPED = ("", "application/octet-stream", "binary/octet-stream")
SAME_PAGES = 2  # so many may be what the Source has; the next one is not believed
REMEMBERED = 1_000
HEAD_BYTES = 1024
LOGIN = re.compile(
    r"\b(?:log-?in|log-?on|sign-?in|sso|saml2?|shibboleth|oauth2?|oidc|cas|auth)\b", re.IGNORECASE
)
PASSWORD = re.compile(rb"<input\b[^<>]{0,300}?\btype\s*=\s*[\"']?password\b", re.IGNORECASE)
OF_ONE_VISIT = re.compile(
    rb"\b(?:value|content|nonce|action|href|src)\s*=\s*(?:\"[^\"]*\"|'[^']*')", re.IGNORECASE
)


class LoginPages:
    """Pages that ask for a password, sent with status 200 for the resources of one copy.

    Of a Source that gives no types, a page that has a password field may be the resource itself. It
    is not where its name is that of another kind of file, nor where several resources are the same.
    """

    def __init__(self) -> None:
        self._urls: dict[bytes, list[str]] = {}  # by page

    def problem(self, url: str, content: bytes) -> str | None:
        """Why it is not the resource."""
        head = content[:HEAD_BYTES].lower()
        if not (b"<html" in head or b"<!doctype html" in head) or not PASSWORD.search(content):
            return None
        if guess_type(urlsplit(url).path)[0] not in (None, *HTML):
            return "is a page in HTML that asks for a password"
        if len(self._urls) >= REMEMBERED:
            self._urls.clear()
        page = hashlib.sha256(OF_ONE_VISIT.sub(b"", content), usedforsecurity=False).digest()
        urls = self._urls.setdefault(page, [])
        if url in urls:
            return None
        if len(urls) < SAME_PAGES:
            urls.append(url)
            return None
        return f"is the same page as {' and '.join(urls)}, and asks for a password"


def is_unverified(wanted: SourceResource) -> bool:
    """Whether the Source says nothing by which another content could be known."""
    return wanted.length is None and not digests(wanted.hash)


def unlike(url: str, wanted: SourceResource, answer: Answer) -> str | None:
    """Why what is sent is not the resource, as far as its address and its type tell."""
    if digests(wanted.hash):
        return None
    came = media_type(answer.headers.get("content-type"))
    if answer.url != without_login(url):
        return _ends_elsewhere(url, wanted, answer, came)
    told = media_type(wanted.type)
    if wanted.length is None and came in HTML and told not in (*HTML, *UNTYPED):
        return f"is sent as {came}, but the Source says {told}"
    return None


def _ends_elsewhere(url: str, wanted: SourceResource, answer: Answer, came: str) -> str | None:
    """Why what a redirect led to is not the resource."""
    to = f"is redirected to {answer.url}"
    if wanted.type is not None and came not in (media_type(wanted.type), *UNTYPED):
        return f"{to}, which is {came}, but the Source says {media_type(wanted.type)}"
    if came not in HTML or media_type(wanted.type) in HTML:
        return None
    parts = urlsplit(answer.url)
    if LOGIN.search(f"{parts.hostname}{parts.path}"):
        return f"{to}, which looks like a login page"
    if guess_type(urlsplit(url).path)[0] not in (None, *HTML):
        return f"{to}, which is a page in HTML"
    return None
