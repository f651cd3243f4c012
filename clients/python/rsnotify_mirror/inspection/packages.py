"""The ZIP packages of dumps: their length and hash, their manifests, what is in them.

Rules that hold here: what is fetched and what is unpacked is bounded for all packages together; a
package that was replaced meanwhile is no violation.
"""

import asyncio
import zipfile
from tempfile import TemporaryFile
from typing import BinaryIO, cast

import msgspec

from rsnotify.errors import Rejected, TryAgain
from rsnotify.resourcesync.validation.document_rules import judge
from rsnotify.resourcesync.validation.editions import as_of_today
from rsnotify.resourcesync.validation.entry_rules import Violation
from rsnotify.resourcesync.validation.tables import MAX_BYTES
from rsnotify.resourcesync.xml_reader import parse_document
from rsnotify.resourcesync.xml_writer import Entry, Md
from rsnotify_client.dumps import MANIFEST, Package, Packed
from rsnotify_client.resource import checker
from rsnotify_client.web import Web, check_status
from rsnotify_mirror.inspection.checked import PACKAGE, Bounds, Checked
from rsnotify_mirror.inspection.contents import NAMED, Contents
from rsnotify_mirror.inspection.documents import TOKEN_NEEDED, Documents
from rsnotify_mirror.inspection.relations import (
    NamedDocument,
    NamedPackage,
    packages_in,
    unlike,
)
from rsnotify_mirror.inspection.samples import different

ADVICE = "Write the package, its manifest and its dump together."


class TooMuch(Exception):
    """More bytes than may be read, or unpacked."""


class Packages:
    """The packages of all dumps that were read."""

    def __init__(self, web: Web, documents: Documents, contents: Contents, bounds: Bounds) -> None:
        self.unopened = 0
        self._web = web
        self._documents = documents
        self._contents = contents
        self._bounds = bounds
        self._left_bytes = bounds.package_bytes
        self._left_unpacked = bounds.unpacked_bytes

    async def check(self) -> list[Checked]:
        named = [
            each
            for url, document in self._documents.read.items()
            for each in packages_in(url, document)
        ]
        self.unopened = max(0, len(named) - self._bounds.packages)
        return [await self._checked(each) for each in named[: self._bounds.packages]]

    async def _checked(self, named: NamedPackage) -> Checked:
        checked = Checked(named.url, PACKAGE)
        self._documents.report(checked)
        try:
            with TemporaryFile() as opened:
                file = cast("BinaryIO", opened)
                differs = await self._fetch(named, file)
                found = [] if differs else await asyncio.to_thread(self._inside, named, file)
        except TooMuch as error:
            checked.error = str(error)
        except (Rejected, TryAgain) as error:
            if getattr(error, "status", None) in TOKEN_NEEDED:
                checked.error = error.detail
            else:
                checked.violations = [_wrong(error.detail)]
        else:
            checked.violations = [*differs, *found]
        if checked.violations and not await self._is_still_named(named):
            checked.violations, checked.note = [], "it was replaced meanwhile"
        return checked

    async def _is_still_named(self, named: NamedPackage) -> bool:
        document = await self._documents.again(named.dump)
        return document is None or named in packages_in(named.dump, document)

    async def _fetch(self, named: NamedPackage, file: BinaryIO) -> list[Violation]:
        """Into the file; in what it is not as the dump tells."""
        has = checker(named.md.hash)
        async with self._web.ask(named.url) as answer:
            check_status(named.url, answer)
            async for piece in answer.pieces():
                self._left_bytes -= len(piece)
                if self._left_bytes < 0:
                    raise TooMuch("it was not read to its end: the packages are too long together")
                file.write(piece)
                if has is not None:
                    has[1].update(piece)
        wrong = different(file.tell(), named.md.length, has)
        return [_wrong(wrong)] if wrong else []

    # What is in it ------------------------------------------------------------------------------

    def _inside(self, named: NamedPackage, file: BinaryIO) -> list[Violation]:
        """In a thread, which is waited for."""
        package = Package(file, named.url)
        found = self._manifest(named, file)
        members = (self._member(package, each) for each in package.resources())
        wrong = [each for each in members if each is not None]
        wrong += [_wrong(each.removeprefix(f"{named.url} ")) for each in package.refused]
        found += wrong[:NAMED]
        if len(wrong) > NAMED:
            found.append(_wrong(f"the same of {len(wrong) - NAMED} more resources"))
        return found

    def _manifest(self, named: NamedPackage, file: BinaryIO) -> list[Violation]:
        """The one inside, held against its copy; without a copy it stands for it."""
        body = _manifest_of(file)
        if body is None:
            return []  # `Package` says so
        found = [_inside_of(each) for each in judge(body).violations]
        try:
            document = parse_document(as_of_today(body)[0])
        except Rejected:
            return found
        stated = NamedDocument(named.url, named.capability, "contents", Entry(md=named.md))
        found += [_inside_of(each) for each in unlike(stated, document, named.dump)]
        read = self._documents.read
        self._contents.add(named.url, document.entries)
        if named.contents is None:
            read[named.url] = msgspec.structs.replace(document, entries=())
        elif named.contents in read and not found:
            loc = self._contents.differ(named.url, named.contents)
            if loc is not None:
                found.append(
                    _wrong(f"{MANIFEST} does not tell the same of {loc} as {named.contents}")
                )
        return found

    def _member(self, package: Package, packed: Packed) -> Violation | None:
        md = packed.entry.md or Md()
        has, length = checker(md.hash), 0
        try:
            for piece in package.content(packed):
                length += len(piece)
                self._left_unpacked -= len(piece)
                if self._left_unpacked < 0:
                    raise TooMuch("not all that is in it was unpacked: too many bytes together")
                if has is not None:
                    has[1].update(piece)
        except Rejected as error:
            return _wrong(error.detail)
        wrong = different(length, md.length, has)
        return _wrong(f"{packed.path}: {wrong}") if wrong else None


def _manifest_of(file: BinaryIO) -> bytes | None:
    """`Package` has judged the file before, and reads it again."""
    with zipfile.ZipFile(file) as package:
        names = {name.lstrip("/"): name for name in package.namelist()}
        if MANIFEST not in names:
            return None
        with package.open(names[MANIFEST]) as member:
            return member.read(MAX_BYTES + 1)


def _inside_of(found: Violation) -> Violation:
    return msgspec.structs.replace(found, path=f"{MANIFEST}{found.path}")


def _wrong(detail: str) -> Violation:
    return Violation("Core 11.1", "/", detail, ADVICE)
