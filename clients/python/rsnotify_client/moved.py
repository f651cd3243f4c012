"""A Source that has another address now: where it says that it is, and what of it is believed.

Rules that hold here: only a permanent redirect says that something has moved. Within one site it
is believed; to another host never, for an old domain in other hands must not take a copy along:
there a person says so.
"""

from urllib.parse import urlsplit

from rsnotify_client.address import canonical, host_of
from rsnotify_client.web import REDIRECTS, Web

PERMANENT = frozenset({301, 308})


def renamed(old: str, new: str) -> tuple[str, str]:
    """What addresses began with before a move, and what they begin with now.

    >>> renamed("http://a.example/x/capabilitylist.xml", "https://b.example/y/capabilitylist.xml")
    ('http://a.example/x/', 'https://b.example/y/')
    >>> renamed("http://a.example/x/y.xml", "https://b.example/x/z.xml")
    ('http://a.example/', 'https://b.example/')
    """
    (olds, before), (news, after) = map(_folders, (old, new))
    while before and after and before[-1] == after[-1]:
        before.pop()
        after.pop()
    return "".join((olds, "/", *before)), "".join((news, "/", *after))


def _folders(url: str) -> tuple[str, list[str]]:
    """The host of an address, and the folders on the way to what it names."""
    host = host_of(url)
    path = url[len(host) + 1 :].partition("?")[0].rpartition("/")[0]
    return host, [f"{each}/" for each in path.split("/") if path]


def moved_by(url: str, old: str, new: str) -> str | None:
    """The address as it is after the move; None if it does not begin so.

    >>> moved_by("http://A.example/x%7e", "http://a.example/", "https://b.example/")
    'https://b.example/x~'
    """
    for each in (url, canonical(url)):
        if each.startswith(old):
            return new + each[len(old) :]
    return None


def is_one_site(old: str, new: str) -> bool:
    """Whether both are at one host, and the connection to the new one is no less safe.

    >>> is_one_site("http://a.example/x", "https://A.example/y")
    True
    >>> is_one_site("https://a.example/", "http://a.example/"), is_one_site("http://a/", "http://b/")
    (False, False)
    """
    try:
        before, after = urlsplit(canonical(old)), urlsplit(canonical(new))
        ports = before.port, after.port
    except ValueError:
        return False
    is_less_safe = (before.scheme, after.scheme) == ("https", "http")
    return before.hostname == after.hostname and ports[0] == ports[1] and not is_less_safe


async def moved_to(web: Web, url: str) -> str | None:
    """Where permanent redirects of this address lead in the end; None if it has none."""
    return await web.threads.run(_moved_to, web, url)


def _moved_to(web: Web, url: str) -> str | None:
    asked = url
    for _ in range(REDIRECTS + 1):
        answer = web.step(url, asked, {})
        try:
            if answer.leads_to is None:
                return asked if asked != url and answer.status == 200 else None
            if answer.status not in PERMANENT:
                return None
            asked = answer.leads_to
        finally:
            answer.close()
    return None
