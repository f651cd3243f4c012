"""The records of a ZIP whose members are stored, not compressed. Pure.

Rules that hold here: a member is complete before its header is written, so no header is ever
corrected; where a number is too long for its field, the ZIP64 field that follows has it. Names are
UTF-8.
"""

import struct
from functools import lru_cache
from time import gmtime
from typing import BinaryIO

import msgspec

LIMIT_32, LIMIT_16 = 0xFFFFFFFF, 0xFFFF
PLAIN, ZIP64 = 20, 45  # the version that a reader must understand
UNIX = 3 << 8
UTF_8 = 0x0800
REGULAR_FILE = 0o100644 << 16
_EXTRA = struct.Struct("<2H2Q")
_LOCAL = struct.Struct("<10s4I2H")
_CENTRAL = struct.Struct("<12s4I2H6x2I")
MOST_RECORD = _CENTRAL.size + 28  # without the name
_END_64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR_64 = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")
END_BYTES = _END_64.size + _LOCATOR_64.size + _END.size

BytesOrFile = bytes | BinaryIO
"""What a member holds: a long one is not read into memory."""


class ZipMember(msgspec.Struct, array_like=True, gc=False):
    """A resource in a package, and what the next dump has to know of it."""

    loc: str
    entry: bytes  # its `<url>` in the manifest
    name: bytes
    length: int
    crc: int
    stamp: int  # MS-DOS date and time
    seen: bytes = b""  # the digest of what the mirror knew of it
    offset: int = 0

    @property
    def size(self) -> int:
        """Of header and content together."""
        extra = _EXTRA.size if self.length >= LIMIT_32 else 0
        return _LOCAL.size + len(self.name) + extra + self.length


_BEGIN = {each: struct.pack("<4H", UNIX | each, each, UTF_8, 0) for each in (PLAIN, ZIP64)}
_LOCALS = {each: b"PK\x03\x04" + begin[2:] for each, begin in _BEGIN.items()}
_CENTRALS = {each: b"PK\x01\x02" + begin for each, begin in _BEGIN.items()}


def local_header(member: ZipMember) -> bytes:
    """What stands before the content."""
    name, length = member.name, member.length
    version, extra, size = PLAIN, b"", length
    if length >= LIMIT_32:
        version, extra, size = ZIP64, _EXTRA.pack(1, 16, length, length), LIMIT_32
    values = _LOCALS[version], member.stamp, member.crc, size, size, len(name), len(extra)
    return _LOCAL.pack(*values) + name + extra


def central_record(member: ZipMember) -> bytes:
    """The member's record in the directory at the end."""
    name, length, offset = member.name, member.length, member.offset
    version, extra = PLAIN, b""
    if length >= LIMIT_32 or offset >= LIMIT_32:
        longs = [length] * (2 * (length >= LIMIT_32)) + [offset] * (offset >= LIMIT_32)
        version, extra = ZIP64, struct.pack(f"<2H{len(longs)}Q", 1, 8 * len(longs), *longs)
        length, offset = min(length, LIMIT_32), min(offset, LIMIT_32)
    begin, ends = _CENTRALS[version], (len(extra), REGULAR_FILE, offset)
    head = _CENTRAL.pack(begin, member.stamp, member.crc, length, length, len(name), *ends)
    return head + name + extra


def end_records(count: int, size: int, offset: int) -> bytes:
    """The end of a package whose directory has so many members and bytes, and begins there."""
    is_long = count >= LIMIT_16 or size >= LIMIT_32 or offset >= LIMIT_32
    long_end = b""
    if is_long:
        version = UNIX | ZIP64
        long_end = _END_64.pack(
            *(b"PK\x06\x06", _END_64.size - 12, version, ZIP64, 0, 0, count, count, size, offset)
        ) + _LOCATOR_64.pack(b"PK\x06\x07", 0, offset + size, 1)
    short = min(count, LIMIT_16)
    least = min(size, LIMIT_32), min(offset, LIMIT_32)
    return long_end + _END.pack(b"PK\x05\x06", 0, 0, short, short, *least, 0)


@lru_cache(maxsize=1_000)
def stamp_of(seconds: float | None) -> int:
    """A time in UTC as MS-DOS has it, from 1980 to 2107.

    >>> hex(stamp_of(None)), hex(stamp_of(1e11)), hex(stamp_of(1795210440.0))
    ('0x210000', '0xff9fbf7d', '0x5d74ac40')
    """
    if seconds is None or seconds < 315_532_800:
        return 0x210000
    if seconds >= 4_354_819_200:
        return 0xFF9FBF7D
    at = gmtime(seconds)
    date = (at.tm_year - 1980) << 9 | at.tm_mon << 5 | at.tm_mday
    return date << 16 | at.tm_hour << 11 | at.tm_min << 5 | at.tm_sec // 2
