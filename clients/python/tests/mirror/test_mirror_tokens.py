"""Whose token a command shows to the Source that it reads."""

import pytest

from tests.support.running import rsnotify
from tests.support.sources import CAPABILITIES, Source

READ = [
    "mirror URL COPY --once",
    "mirror URL COPY --once --all-sets",
    "mirror URL COPY --dry-run",
    "mirror URL --stdout --once",
    "audit URL COPY",
    "validate URL",
    "validate --site URL --listen 0",
    "bridge URL --show --no-robots",
]


@pytest.mark.parametrize("line", READ)
async def test_a_source_of_strangers_never_gets_the_token_of_a_hub_that_is_not_named(
    line, source, copy
):
    """Its name is none of this machine's, though that is where it is."""
    stranger = source.url.replace("127.0.0.1", "127.1")
    if line.startswith("audit"):
        made = await rsnotify("mirror", stranger + CAPABILITIES, str(copy), "--once")
        assert made.status == 0, made.err
    words = line.replace("URL", stranger + CAPABILITIES).replace("COPY", str(copy)).split()
    source.requests.clear()
    for given in ({"RSNOTIFY_TOKEN": "ours"}, {"RSNOTIFY_ADMIN_TOKEN": "ours"}):
        said = await rsnotify(*words, **given)
        assert said.status in (0, 1), said.err
        is_ours = "RSNOTIFY_TOKEN" in given and not line.startswith("bridge")
        is_said = "RSNOTIFY_TOKEN is for a hub on this machine: it is not sent to" in said.err
        assert is_said is is_ours, said.err
    assert {headers.get("Authorization") for _, headers in source.requests} == {None}
    await rsnotify(*words, RSNOTIFY_TOKEN="ours", RSNOTIFY_SOURCE_TOKEN="its")
    assert "Bearer its" in {headers.get("Authorization") for _, headers in source.requests}


async def test_of_several_documents_the_source_of_the_first_is_shown_the_token(source, tmp_path):
    (tmp_path / "file.xml").write_bytes(source.documents[CAPABILITIES])
    async with Source() as other:
        urls = [each.url + CAPABILITIES for each in (source, other, source)]
        words = ("validate", str(tmp_path / "file.xml"), *urls)
        assert (await rsnotify(*words, RSNOTIFY_SOURCE_TOKEN="its")).status == 0
        shown = [
            [headers.get("Authorization") for _, headers in each.requests]
            for each in (source, other)
        ]
    assert shown == [["Bearer its", "Bearer its"], [None]]
