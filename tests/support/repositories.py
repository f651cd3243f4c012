"""An OAI-PMH repository: the server of `oaipmh` from PyPI over records that a test decides."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from aiohttp import web
from oaipmh import common, error, metadata
from oaipmh.server import BatchingServer, oai_dc_writer


def _utc_now() -> datetime:
    """As `oaipmh` has times: without a zone."""
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


BEGAN = datetime(2020, 1, 1)
BAD_TOKEN = (
    '<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/">'
    "<responseDate>2026-11-20T00:00:00Z</responseDate><request/>"
    '<error code="badResumptionToken">expired</error></OAI-PMH>'
)


class Record(NamedTuple):
    """One record, and when it was stamped."""

    number: int
    stamp: datetime
    is_deleted: bool
    title: str


class Repository:
    """Records in memory; `handler` answers requests of OAI-PMH."""

    def __init__(self, url: str, *, batch: int = 10, deleted: str = "persistent") -> None:
        self.url = url
        self.deleted = deleted
        self.records: dict[int, Record] = {}
        self.expire_after: int | None = None  # so many requests with a token are answered
        self.expired = 0
        self.asked: list[dict[str, str]] = []
        self._now = _utc_now() - timedelta(hours=1)
        registry = metadata.MetadataRegistry()
        registry.registerWriter("oai_dc", oai_dc_writer)
        self._server = BatchingServer(self, registry, resumption_batch_size=batch)

    def put(self, number: int, title: str = "") -> None:
        self.records[number] = Record(number, self._stamp(), False, title or f"Record {number}")

    def delete(self, number: int) -> None:
        if self.deleted == "no":
            del self.records[number]
        else:
            self.records[number] = Record(number, self._stamp(), True, "")

    def _stamp(self) -> datetime:
        """Each its own second, and none before what was harvested."""
        self._now = max(self._now + timedelta(seconds=1), _utc_now() if self.asked else BEGAN)
        return self._now

    def resources(self) -> set[str]:
        return {self.loc(each.number) for each in self.records.values() if not each.is_deleted}

    def loc(self, number: int) -> str:
        return f"https://repo.example/record/{number}"

    async def handler(self, request: web.Request) -> web.Response:
        asked = dict(request.query)
        self.asked.append(asked)
        if "resumptionToken" in asked and self.expire_after is not None:
            if self.expire_after == 0:
                self.expire_after, self.expired = None, self.expired + 1
                return web.Response(text=BAD_TOKEN, content_type="text/xml")
            self.expire_after -= 1
        body = self._server.handleRequest(asked)
        return web.Response(body=body, content_type="text/xml")

    # What `oaipmh` asks for -------------------------------------------------------------------

    def identify(self) -> Any:
        return common.Identify(
            "A repository", self.url, "2.0", ["admin@repo.example"], BEGAN, self.deleted,
            "YYYY-MM-DDThh:mm:ssZ", ["identity"], toolkit_description=False,
        )  # fmt: skip

    def getRecord(self, identifier: str, **_: Any) -> Any:  # noqa: N802
        record = self.records.get(int(identifier.rpartition(":")[2]))
        if record is None:
            raise error.IdDoesNotExistError(identifier)
        header = common.Header(None, identifier, record.stamp, [], record.is_deleted)
        return header, None if record.is_deleted else self._metadata(header), None

    def listRecords(self, **asked: Any) -> list[Any]:  # noqa: N802
        return [
            (each, None if each.isDeleted() else self._metadata(each), None)
            for each in self._found(**asked)
        ]

    def listIdentifiers(self, **asked: Any) -> list[Any]:  # noqa: N802
        return list(self._found(**asked))

    def _found(
        self, *, cursor: int = 0, batch_size: int = 10, from_: datetime | None = None, **_: Any
    ) -> Iterator[Any]:
        records = sorted(self.records.values(), key=lambda each: each.stamp)
        new = [each for each in records if from_ is None or each.stamp >= from_]
        if not new:
            raise error.NoRecordsMatchError("nothing")
        for each in new[cursor : cursor + batch_size]:
            name = f"oai:repo.example:{each.number}"
            yield common.Header(None, name, each.stamp, [], each.is_deleted)

    def _metadata(self, header: Any) -> Any:
        record = self.records[int(header.identifier().rpartition(":")[2])]
        given = {
            "title": [record.title],
            "identifier": [f"record {record.number}", self.loc(record.number)],
        }
        return common.Metadata(None, given)
