"""Whatever strangers send is read or refused: each input of the corpus, and mutations of them.

The same ones each time: `make fuzz` looks for others. That a target sees what it is there for is
tried on faults that are planted here.
"""

import gc
import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rsnotify.access import query
from rsnotify.channels.socket_reader import SocketReader
from rsnotify.http.protocol import HttpProtocol
from rsnotify.publishing.loads.load_formats import NdjsonReader
from rsnotify.redis_client.pool import DirectConnection
from rsnotify.resourcesync.stream import DocumentStream
from rsnotify.websub import rules
from rsnotify_bridge import feeds, oaipmh
from rsnotify_client.dumps import Package
from tests.evidence.fuzz.mutations import mutations
from tests.evidence.fuzz.targets import TARGETS
from tests.support.amount import amount, enough

CORPUS = Path(__file__).with_name("corpus")
CORPUS_BYTES = 300 * 1024
MUTATIONS = amount(500, evidence=2_000)
KEPT_BYTES = 32 * 1024 * 1024  # at most, for an input of some KiB


def corpus_of(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


@pytest.mark.parametrize("name", enough([*TARGETS], 6))
def test_what_strangers_send_is_read_or_refused(name):
    target, corpus = TARGETS[name], corpus_of(name)
    for data in (*corpus, *mutations(corpus, target.words, MUTATIONS, random.Random(name))):
        target.read(data)


@pytest.mark.parametrize("name", enough([*TARGETS], 4))
def test_what_strangers_send_takes_little_memory(name):
    target, corpus = TARGETS[name], corpus_of(name)
    inputs = [*corpus, *mutations(corpus, target.words, 50, random.Random(name))]
    target.read(inputs[0])
    for data in inputs:
        gc.collect(0)
        tracemalloc.start()
        try:
            target.read(data)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most <= KEPT_BYTES, data


def test_the_corpus_is_small_and_each_target_has_one():
    assert {path.name for path in CORPUS.iterdir()} == {*TARGETS}
    assert sum(path.stat().st_size for path in CORPUS.glob("*/*")) <= CORPUS_BYTES


def fails(*_: Any, **__: Any) -> Any:
    raise IndexError("planted")


PLANTED = {
    "feed": (feeds, "moment", fails),
    "oai": (oaipmh, "_record", fails),
    "http": (HttpProtocol, "refuse", fails),
    "websocket": (SocketReader, "_act_on", fails),
    "redis": (DirectConnection, "_note_progress", fails),
    "xml": (DocumentStream, "skip", fails),
    "json": (json.JSONDecoder, "raw_decode", fails),
    "ndjson": (NdjsonReader, "close", fails),
    "query": (query, "single", fails),
    "form": (rules, "checked_url", fails),
    "zip": (Package, "content", fails),
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_fault_that_is_planted_is_found(monkeypatch, name):
    owner, attribute, fault = PLANTED[name]
    monkeypatch.setattr(owner, attribute, fault)
    with pytest.raises((AssertionError, IndexError)):
        test_what_strangers_send_is_read_or_refused(name)


@pytest.mark.parametrize(("name", "reader"), [("xml", DocumentStream), ("ndjson", NdjsonReader)])
def test_what_pieces_mean_is_compared(monkeypatch, name, reader):
    """Planted: a piece loses the white space at its end."""
    feed = reader.feed
    monkeypatch.setattr(reader, "feed", lambda self, data: feed(self, data.rstrip()))
    with pytest.raises(AssertionError, match="pieces mean something else"):
        test_what_strangers_send_is_read_or_refused(name)
