"""Inputs made of others, the same ones for the same seed."""

import random
from collections.abc import Iterator, Sequence

MOST_BYTES = 8 * 1024
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x0D, 0x20, 0x22, 0x3C, 0x5C)


def mutations(
    corpus: Sequence[bytes], words: Sequence[bytes], count: int, chance: random.Random
) -> Iterator[bytes]:
    for _ in range(count):
        data = bytearray(chance.choice(corpus))
        for _ in range(chance.choice((1, 1, 2, 4, 8))):
            _mutate(data, corpus, words, chance)
        yield bytes(data[:MOST_BYTES])


def _mutate(
    data: bytearray, corpus: Sequence[bytes], words: Sequence[bytes], chance: random.Random
) -> None:
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 2, 4, 16, 64)))
    match chance.randrange(7):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.choice(_INTERESTING)
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end] * chance.choice((1, 2, 8))
        case 4:
            data[at:at] = chance.choice(words)
        case 5:
            data[at:end] = chance.choice(words)
        case _:
            other = chance.choice(corpus)
            data[at:] = other[chance.randrange(len(other) + 1) :]
