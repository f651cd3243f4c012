"""Files of the copy: written aside and renamed, removed, read; never through a symlink.

Rules that hold here: every folder on the way is opened by its parent, and no symlink is followed;
so nothing is ever touched outside the directory, whatever stands there. A folder may be another
mount, into which nothing can be renamed: a file is copied there beside its place, and renamed then;
one that may be long, in a thread. Where it is copied to is noted among the parts before, so what a
killed mirror leaves is found.
"""

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from rsnotify.errors import InvalidSettings, TryAgain
from rsnotify_client.blocking_threads import BlockingThreads
from rsnotify_mirror.across import BESIDE, FileCopy, name_beside
from rsnotify_mirror.paths import OURS, digest

PARTS = f"{OURS}-parts"
FOLDERS_OPEN = 64
NAME_BYTES = 255  # a file system takes no longer name
NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP)
SMALL = "small"  # the part in which small files are written, to be renamed at once
THREADS = 2  # that copy to another mount
Made = TypeVar("Made")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe would block
_PART = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def digest_of(file: BinaryIO) -> str:
    """The digest of all that it has, as the specification writes it."""
    return f"sha-256:{file_digest(cast('Any', file), 'sha256').hexdigest()}"


def write_all(part: BinaryIO, piece: bytes) -> None:
    """Write all of it or raise: a disk that gets full takes a part without an error."""
    left = memoryview(piece)
    while left:
        left = left[part.write(left) :]


class InTheWay(OSError):
    """Something stands where a file of the copy belongs."""


class Disk:
    """The directory of a mirror, or one that deleted files are kept in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with self.checked():
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._folders: OrderedDict[str, int] = OrderedDict()
        self._threads = BlockingThreads(THREADS)

    def close(self) -> None:
        self._threads.close()
        self._forget_all()
        os.close(self._root)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """What cannot be done with the directory itself is an error that a user can understand."""
        try:
            yield
        except InTheWay as error:
            raise InvalidSettings(f"{self.root}: {error.strerror}") from None
        except OSError as error:
            raise InvalidSettings(
                f"{self.root} cannot be used: {error.strerror}: look whether it is there, and "
                "whether its files may be written"
            ) from None

    # Parts --------------------------------------------------------------------------------------

    def part_name(self, loc: str) -> str:
        return f"{PARTS}/{digest(loc, 32)}"

    def open_part(self, loc: str, *, keep: bool = False) -> BinaryIO:
        """The file in which a resource is put together; empty, unless it is to be kept."""
        if not keep:
            self.drop_part(loc)  # not emptied: it may just be copied to its place
        folder, name = self._at(self.part_name(loc), create=True)
        return os.fdopen(os.open(name, _PART, 0o666, dir_fd=folder), "r+b", buffering=0)

    def part_length(self, loc: str) -> int:
        found = self.status(self.part_name(loc))
        return found.st_size if found else 0

    def drop_part(self, loc: str) -> None:
        with suppress(FileNotFoundError):
            folder, name = self._at(self.part_name(loc))
            os.unlink(name, dir_fd=folder)

    def sweep(self, wanted: Callable[[], Iterable[str]]) -> None:
        """Remove the parts but for those of these resources, and what was on its way to another
        mount; and their folder, once it is empty."""
        with suppress(FileNotFoundError):
            folder = self._folder(PARTS, create=False)
            if found := os.listdir(folder):
                kept = {self.part_name(loc).rpartition("/")[2] for loc in wanted()}
                for name in set(found) - kept:
                    if not name.startswith(BESIDE) or self._is_swept(name):
                        os.unlink(name, dir_fd=folder)
            self._forget(PARTS)
        with suppress(OSError):
            os.rmdir(PARTS, dir_fd=self._root)

    # On the way to another mount ------------------------------------------------------------------

    def _note(self, aside: str, other: "Disk", path: str) -> None:
        """Note that a file is copied beside this place."""
        root = "" if other is self else str(other.root.absolute())  # a copy may itself be moved
        parts = self._folder(PARTS, create=True)
        with os.fdopen(
            os.open(aside, _PART | os.O_TRUNC, 0o666, dir_fd=parts), "wb", buffering=0
        ) as note:
            write_all(note, os.fsencode(f"{root}\0{path.rpartition('/')[0]}\0"))

    def _noted(self, aside: str) -> tuple[str, str] | None:
        """The directory, empty if it is this one, and the folder in it that were noted."""
        try:
            with self.open_file(f"{PARTS}/{aside}") as note:
                root, folder, _ = os.fsdecode(note.read()).split("\0")
        except (OSError, ValueError):  # a note is cut off if nothing had been copied yet
            return None
        return root, folder

    def _is_swept(self, aside: str) -> bool:
        """Remove what was on its way under this name; False if that is not possible now."""
        if (noted := self._noted(aside)) is None:
            return True
        root, folder = noted
        try:
            with closing(Disk(Path(root) if root else self.root)) as disk:
                above, name = disk._at(f"{folder}/{aside}" if folder else aside)
                os.unlink(name, dir_fd=above)
        except (FileNotFoundError, InTheWay):
            pass
        except (OSError, InvalidSettings):
            return False
        return True

    def is_on_its_way(self, path: str) -> bool:
        """Whether this is, or was just now, a file that is copied beside its place."""
        folder, _, name = path.rpartition("/")
        if not name.startswith(BESIDE):
            return False
        return self._noted(name) == ("", folder) or self.status(path) is None

    @asynccontextmanager
    async def _copied(self, path: str, other: "Disk", new: str) -> AsyncIterator[FileCopy]:
        """A copy of a file beside the place that it is to have on another mount."""
        aside = name_beside()

        def begun() -> FileCopy:
            folder, _ = other._at(new, create=True)
            with _held_open(folder) as held:
                return FileCopy(_opened_file(*self._at(path)), held, aside)

        self._note(aside, other, new)
        try:
            copy = self._afresh(other, begun)
        except BaseException:
            self._forget_note(aside)
            raise
        try:
            await self._threads.run(copy.copy, abort=copy.give_up)
            yield copy
        finally:
            copy.close()  # what cannot be removed now stays noted
            self._forget_note(aside)

    def _forget_note(self, aside: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(aside, dir_fd=self._folder(PARTS, create=False))

    def _remove_copied(self, copy: FileCopy, path: str) -> None:
        """Remove what was copied, unless another file has its name by now."""
        found = self.status(path)
        if found is not None and copy.is_of(found):
            folder, name = self._at(path)
            os.unlink(name, dir_fd=folder)

    # Files --------------------------------------------------------------------------------------

    async def put_part(
        self,
        loc: str,
        path: str,
        modified: float | None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Move the part to its place, atomically; `check` may refuse it until then."""
        part = self.part_name(loc)
        source, name = self._at(part)
        if modified is not None:
            os.utime(name, (modified, modified), dir_fd=source, follow_symlinks=False)
        check()
        if self._is_renamed(part, path):
            return
        async with self._copied(part, self, path) as copy:
            check()
            with _folders_named(path):
                copy.finish(path.rpartition("/")[2])
            self._remove_copied(copy, part)

    def put(self, path: str, content: bytes, modified: float | None) -> None:
        """Write what is in memory to its place, atomically."""
        folder, name = self._folder(PARTS, create=True), SMALL
        part = os.open(name, _PART | os.O_TRUNC, 0o666, dir_fd=folder)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(part, left) :]
            if modified is not None:
                os.utime(part, (modified, modified))
        finally:
            os.close(part)
        if not self._is_renamed(f"{PARTS}/{SMALL}", path):
            self._note(BESIDE, self, path)
            self._afresh(self, partial(self._put_across, path))
            os.unlink(SMALL, dir_fd=self._folder(PARTS, create=False))

    def _put_across(self, path: str) -> None:
        folder, name = self._at(path, create=True)
        source, small = self._at(f"{PARTS}/{SMALL}")
        try:
            _copy_to(source, small, folder, BESIDE)
            with _folders_named(path):
                os.replace(BESIDE, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):  # the next one is noted in its place
                os.unlink(BESIDE, dir_fd=folder)
            raise

    def _is_renamed(self, path: str, new: str) -> bool:
        """Rename a file of this directory; False if its place is on another mount."""

        def is_renamed() -> bool:
            folder, name = self._at(new, create=True)
            source, part = self._at(path)
            with _folders_named(new):
                return _is_moved(source, part, folder, name)

        return self._afresh(self, is_renamed)

    def remove(self, path: str) -> list[str]:
        """Remove a file, and the folders that it leaves empty; those that are gone are returned."""
        with suppress(FileNotFoundError):
            folder, name = self._at(path)
            os.unlink(name, dir_fd=folder)
        return self._prune(path)

    async def move_to(self, other: "Disk", path: str, mark: str) -> list[str]:
        """Move a file aside; beside an older one of its name it gets a mark."""

        def free_place() -> str:
            return path if other.status(path) is None else _marked(path, mark)

        with self._if_it_is_there(path):
            if not self._is_moved_to(other, path, free_place):
                async with self._copied(path, other, path) as copy:
                    found = self.status(path)
                    if found is not None and not copy.is_of(found):
                        raise TryAgain(
                            f"{path} was replaced while it was moved aside", retry_after_seconds=0
                        )
                    place = free_place().rpartition("/")[2]
                    copy.finish(place)
                    try:
                        self._remove_copied(copy, path)
                    except OSError:
                        copy.take_back(place)  # each attempt would leave one more
                        raise
        return self._prune(path)

    def _is_moved_to(self, other: "Disk", path: str, place: Callable[[], str]) -> bool:
        """Rename a file; False if its place is on another mount."""

        def is_moved() -> bool:
            source, name = self._at(path)
            with _held_open(source) as held:
                return _is_moved(held, name, *other._at(place(), create=True))

        return self._afresh(other, is_moved)

    @contextmanager
    def _if_it_is_there(self, path: str) -> Iterator[None]:
        """A file that is not there need not be moved."""
        try:
            yield
        except FileNotFoundError:
            if self.status(path) is not None:
                raise

    async def link_to(self, other: "Disk", path: str, name: str) -> None:
        """Give a file a second name in another directory; where no link can be made, copy it."""

        def link() -> None:
            source, file = self._at(path)
            folder, there = other._at(name, create=True)
            os.link(file, there, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

        try:
            self._afresh(other, link)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            async with self._copied(path, other, name) as copy:
                copy.finish(name.rpartition("/")[2])

    def copy_to(self, other: "Disk", path: str, name: str) -> None:
        """Copy a file into another directory; it has its name there once it is whole."""
        source, file = self._at(path)
        folder, there = other._at(name, create=True)
        part = other._folder(PARTS, create=True)
        _copy_to(source, file, part, SMALL)
        os.replace(SMALL, there, src_dir_fd=part, dst_dir_fd=folder)

    async def move(self, path: str, new: str) -> list[str]:
        """Move a file within the copy; the folders that are gone with it are returned."""
        with self._if_it_is_there(path):
            if not self._is_moved_to(self, path, lambda: new):
                async with self._copied(path, self, new) as copy:
                    copy.finish(new.rpartition("/")[2])
                    self._remove_copied(copy, path)
        return self._prune(path)

    def status(self, path: str) -> os.stat_result | None:
        """The status of a regular file; None if there is none."""
        try:
            folder, name = self._at(path)
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, InTheWay):
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    def open_file(self, path: str) -> BinaryIO:
        return os.fdopen(self.opened(path), "rb", buffering=0)

    def opened(self, path: str) -> int:
        """A file as the system knows it, where an object for each would take too long."""
        return self._afresh(self, lambda: _opened_file(*self._at(path)))

    def _prune(self, path: str) -> list[str]:
        gone = []
        parts = path.split("/")[:-1]
        while parts:
            folder = "/".join(parts)
            self._forget(folder)
            try:
                with suppress(FileNotFoundError):  # it was removed before
                    parent, name = self._at(folder)
                    os.rmdir(name, dir_fd=parent)
            except OSError:
                break
            gone.append(folder)
            parts.pop()
        return gone

    # Folders ------------------------------------------------------------------------------------

    def _at(self, path: str, *, create: bool = False) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder, create=create), name

    def _folder(self, path: str, *, create: bool) -> int:
        if not path:
            return self._root
        if path in self._folders:
            self._folders.move_to_end(path)
            return self._folders[path]
        parent, _, name = path.rpartition("/")
        above = self._folder(parent, create=create)
        try:
            folder = _opened(above, name, create=create)
        except (NotADirectoryError, OSError) as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise InTheWay(
                    error.errno, f"{path} is a file or a symlink, no folder: remove it"
                ) from None
            raise
        self._folders[path] = folder
        self._close_the_oldest()
        return folder

    def _close_the_oldest(self) -> None:
        """Close the folder opened longest ago, but never that of the parts: every file needs it."""
        if len(self._folders) > FOLDERS_OPEN:
            oldest = next(each for each in self._folders if each != PARTS)
            os.close(self._folders.pop(oldest))

    def _forget(self, path: str) -> None:
        inside = f"{path}/"
        for known in [each for each in self._folders if each == path or each.startswith(inside)]:
            os.close(self._folders.pop(known))

    def _afresh(self, other: "Disk", act: Callable[[], Made]) -> Made:
        """Do it; if something is not there, once more with folders that are opened anew: one that
        was held open may have been removed by somebody."""
        try:
            return act()
        except FileNotFoundError:
            self._forget_all()
            other._forget_all()
            return act()

    def _forget_all(self) -> None:
        for folder in self._folders.values():
            os.close(folder)
        self._folders.clear()


def _opened(above: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not create:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def _opened_file(folder: int, name: str) -> int:
    opened = os.open(name, _FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise InTheWay(errno.EINVAL, f"what stands at {name} is no file: remove it")
    return opened


@contextmanager
def _held_open(folder: int) -> Iterator[int]:
    """A folder that stays open, however many are opened meanwhile."""
    held = os.dup(folder)
    try:
        yield held
    finally:
        os.close(held)


@contextmanager
def _folders_named(path: str) -> Iterator[None]:
    try:
        yield
    except IsADirectoryError:
        raise InTheWay(errno.EISDIR, f"a folder stands at {path}: remove it") from None


def _marked(path: str, mark: str) -> str:
    """A place with a mark, its name cut if it would be too long with that."""
    folder, slash, name = path.rpartition("/")
    kept = name.encode()[: NAME_BYTES - 1 - len(mark)].decode(errors="ignore")
    return f"{folder}{slash}{kept}~{mark}"


def _is_moved(source: int, name: str, folder: int, there: str) -> bool:
    """Give a file its place, atomically; False if that is on another mount."""
    try:
        os.replace(name, there, src_dir_fd=source, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _copy_to(source: int, name: str, folder: int, aside: str) -> None:
    with os.fdopen(_opened_file(source, name), "rb") as old:
        writing = os.open(aside, _PART | os.O_TRUNC, 0o666, dir_fd=folder)
        with os.fdopen(writing, "wb") as new:
            while piece := old.read(1 << 20):
                new.write(piece)
            new.flush()
            found = os.fstat(old.fileno())
            os.utime(writing, ns=(found.st_atime_ns, found.st_mtime_ns))
