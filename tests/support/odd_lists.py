"""Lists that are odd in their form: indexes, parts, pages, gzip. All who read one judge it alike.

Each writes a list of what there is. Of what is right all is read, and nothing is said; of what is
not, what could not be read to its end is said.
"""

import gzip
from collections.abc import Callable
from typing import Any

from tests.support.odd import NAMES, RS, SITEMAP, OddCases, OddSource

Odd = OddSource[Any]
Case = Callable[[Odd], None]
CASES: OddCases[Case] = OddCases()
"""What everybody says of a lie is a regular expression."""
right, lie = CASES.right, CASES.lie


class DeclaredSource(OddSource[None]):
    """Its documents say that they are Resource Lists."""

    capability = "resourcelist"
    times = 'at="2026-11-01T00:00:00Z"'

    def sitemap(self, *names: str, head: str = "", lastmod: str | None = None) -> str:
        return super().sitemap(*names, head=self._md() + head, lastmod=lastmod)

    def index(self, *names: str) -> str:
        return super().index(*names).replace(f"<sitemapindex {SITEMAP}>", self._beginning())

    def _md(self) -> str:
        return f'<rs:md capability="{self.capability}" {self.times}/>'

    def _beginning(self) -> str:
        return f"<sitemapindex {SITEMAP} {RS}>{self._md()}"


class ChangingSource(DeclaredSource):
    """They say that they are Change Lists, in which each resource was made."""

    capability = "changelist"
    times = 'from="2026-11-01T00:00:00Z"'

    def urls(self, *names: str, lastmod: str | None = None) -> str:  # noqa: ARG002
        made = '<rs:md change="created" datetime="2026-11-01T00:00:{:02}Z"/>'
        return "".join(
            f"<url><loc>{self.loc(name)}</loc>{made.format(1 + NAMES.index(name))}</url>"
            for name in names
        )


def halves(odd: Odd, head: str = "", **headers: str) -> None:
    odd.write(odd.sitemap(*NAMES[:10], head=head), **headers)
    odd.write(odd.sitemap(*NAMES[10:]), "more")


# --- what is right but odd ------------------------------------------------------------------------


@right
def an_index(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(*NAMES[:10]), "one")
    odd.write(odd.sitemap(*NAMES[10:]), "two")


@right
def a_part_that_is_named_twice(odd):
    odd.write(odd.index("one", "two", "one"))
    odd.write(odd.sitemap(*NAMES[:10]), "one")
    odd.write(odd.sitemap(*NAMES[10:]), "two")


@right
def indexes_under_an_index(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.index("three", "four"), "one")
    odd.write(odd.index("five"), "three")
    odd.write(odd.sitemap(*NAMES[:5]), "five")
    odd.write(odd.sitemap(*NAMES[5:10]), "four")
    odd.write(odd.sitemap(*NAMES[10:]), "two")


@right
def a_next_page(odd):
    halves(odd, f'<rs:ln rel="next" href="{odd.loc("more")}"/>')


@right
def a_next_page_in_capitals_by_a_relative_link(odd):
    halves(odd, '<rs:ln rel="Next" href="more"/>')


@right
def a_next_page_that_only_a_header_names(odd):
    halves(odd, Link="<more>; REL=Next")


@right
def a_last_page_that_is_empty(odd):
    odd.write(odd.sitemap(head=f'<rs:ln rel="next" href="{odd.loc("more")}"/>'))
    odd.write(odd.sitemap().replace(odd.urls(*NAMES), ""), "more")


@right
def pages_of_a_part_of_a_part(odd):
    odd.write(odd.index("one"))
    odd.write(odd.index("two"), "one")
    odd.write(odd.sitemap(*NAMES[:9], head='<rs:ln rel="next" href="more"/>'), "two")
    odd.write(odd.sitemap(*NAMES[9:]), "more")


@right
def white_space_and_cdata(odd):
    text = odd.sitemap()
    odd.write(text.replace("<loc>", "<loc>\n <![CDATA[").replace("</loc>", "]]>\n</loc>"))


@right
def elements_of_others(odd):
    image = '<i:image xmlns:i="http://i.example/"><i:loc>http://i.example/1</i:loc></i:image></url>'
    odd.write(odd.sitemap().replace("</url>", image))


@right
def several_members_of_gzip(odd):
    body = odd.sitemap().encode()
    odd.write(gzip.compress(body[:500]) + gzip.compress(body[500:]))


@right
def packed_twice(odd):
    body = gzip.compress(odd.sitemap().encode())
    odd.write(gzip.compress(body), **{"Content-Encoding": "gzip"})


@right
def zeros_behind_gzip(odd):
    odd.write(gzip.compress(odd.sitemap().encode()) + bytes(512))


# --- what cannot be read to its end ---------------------------------------------------------------


@lie("there is nothing at this address|404")
def a_part_that_is_not_there(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(), "one")


@lie("there is nothing at this address|404")
def a_page_that_is_not_there(odd):
    odd.write(odd.sitemap(head='<rs:ln rel="next" href="more"/>'))


@lie("503")
def a_part_whose_server_is_overloaded(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(), "one")
    odd.answer("two", status=503)


@lie("without <loc>|without loc|loc is ''")
def an_entry_without_a_loc(odd):
    odd.write(odd.sitemap(*NAMES[1:]).replace("</urlset>", "<url></url></urlset>"))


@lie("without <loc>|without loc|loc is ''")
def a_part_without_a_loc(odd):
    odd.write(odd.index("one").replace("</sitemapindex>", "<sitemap></sitemap></sitemapindex>"))
    odd.write(odd.sitemap(), "one")


@lie("read before it|which has been read")
def pages_in_a_circle(odd):
    odd.write(odd.sitemap(head=f'<rs:ln rel="next" href="{odd.loc("list")}"/>'))


@lie("at another host")
def a_page_at_another_host(odd):
    odd.write(odd.sitemap(head='<rs:ln rel="next" href="http://a.example/"/>'))


@lie("of itself|names itself")
def an_index_under_itself(odd):
    odd.write(odd.index("one", "list"))
    odd.write(odd.sitemap(), "one")


@lie("of itself|names itself|is an index, too")
def an_index_under_one_that_it_names(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(), "one")
    odd.write(odd.index("three"), "two")
    odd.write(odd.index("two"), "three")


@lie("an index under an index, 4|is an index, too")
def indexes_that_are_too_deep(odd):
    odd.write(odd.index("one", "list1"))
    odd.write(odd.index("list2"), "list1")
    odd.write(odd.index("list3"), "list2")
    odd.write(odd.index("one"), "list3")
    odd.write(odd.sitemap(), "one")


@lie("index of nothing|names nothing")
def an_index_of_nothing(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.index(), "one")
    odd.write(odd.sitemap(), "two")


@lie("gzip")
def gzip_that_is_cut_short(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(*NAMES[:9]), "one")
    odd.write(gzip.compress(odd.sitemap(*NAMES[9:]).encode())[:-20], "two")


@lie("well-formed|XML")
def a_part_that_is_cut_short(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(*NAMES[:9]), "one")
    odd.write(odd.sitemap(*NAMES[9:])[:-20], "two")


@lie("html|HTML|root")
def a_part_that_is_a_page_for_people(odd):
    odd.write(odd.index("one", "two"))
    odd.write(odd.sitemap(*NAMES[:9]), "one")
    odd.write("<html><body>Log in</body></html>", "two")


@lie("not a page of")
def a_page_that_is_an_index(odd):
    odd.write(odd.sitemap(head=f'<rs:ln rel="next" href="{odd.loc("more")}"/>'))
    odd.write(odd.index("list"), "more")
