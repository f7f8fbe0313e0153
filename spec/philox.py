"""Numbers from raw Philox bits: the only source of randomness in a run.

NumPy promises the bits of `numpy.random.Philox` for ever, but not what its distributions make of them,
and each framework has a generator of its own. So weights, batches and offsets come from the raw bits
through the mappings in this file, which are integer arithmetic up to one last multiplication: the same
on every platform, NumPy version and thread count.

A stream is named by a 128-bit key, hashed from a seed and labels. Word w of a stream depends on
(key, w) alone, so any part of a stream can be made without the parts before it.

Must not: keep state between calls, or use any distribution of NumPy's. No counterpart on the sides;
neither may use its own generator for a weight or a batch.

Legend: N numbers, w index of a 64-bit word in a stream.
"""

import hashlib
import math

import numpy as np

WORDS_PER_BLOCK = 4
"""64-bit words that one Philox 4x64 counter value yields."""

WORDS_PER_NORMAL = 3
"""64-bit words behind one normal number: 12 uint16."""

_CHUNK = 1 << 12
"""Normal numbers made at once. Their words (96 KiB) stay in cache, and below the size from which malloc takes
fresh pages from the system each time."""

_EVEN_U16 = np.uint64(0x0000FFFF0000FFFF)
_LOW_U32 = np.uint64(0xFFFFFFFF)
_U16 = np.uint64(16)
_U32 = np.uint64(32)

_IRWIN_HALL_MEAN = 6 * 65535
_IRWIN_HALL_UNIT = 65536.0
"""Standard deviation of the sum of 12 uint16: sqrt(2**32 - 1), less 1.2e-10 of it. It divides exactly."""


def key(seed: int, *labels: str | int) -> int:
    """The 128-bit key of the stream named (seed, *labels).

    Each part is hashed with its kind and length, so ("ab", "c") and ("a", "bc"), or "1" and 1, differ.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"parity-philox")
    for part in (seed, *labels):
        data = str(part).encode()
        kind = b"s" if isinstance(part, str) else b"i"
        digest.update(kind + len(data).to_bytes(8, "little") + data)
    return int.from_bytes(digest.digest(), "little")


def bits_u64(key: int, n: int, offset: int = 0) -> np.ndarray:
    """Words [offset, offset + n) of a stream: uint64, shape (n,).

    Word w is word w % 4 of the Philox 4x64-10 block with counter 1 + w // 4 (NumPy counts up before it
    makes a block).
    """
    return _stream_at(key, offset).random_raw(n)


def _stream_at(key: int, offset: int) -> np.random.Philox:
    """A generator whose next word is word `offset` of the stream."""
    stream = np.random.Philox(key=key, counter=offset // WORDS_PER_BLOCK)
    stream.random_raw(offset % WORDS_PER_BLOCK)
    return stream


def uniform_below(key: int, n: int, bound: int, offset: int = 0) -> np.ndarray:
    """n whole numbers in [0, bound): int64, shape (n,); number i is made of word offset + i alone.

    The high half of the 128-bit product word * bound. Without rejection, so that one number costs one
    word: no value is likelier than another by more than bound / 2**64, relatively.
    """
    return scale_below(bits_u64(key, n, offset), bound)


def scale_below(words: np.ndarray, bound: int) -> np.ndarray:
    """Words (uint64, any shape) mapped to int64 in [0, bound): floor(word * bound / 2**64), exactly."""
    assert 1 <= bound <= 1 << 62, bound
    bound_low, bound_high = np.uint64(bound & 0xFFFFFFFF), np.uint64(bound >> 32)
    low, high = words & _LOW_U32, words >> _U32
    # Schoolbook multiplication in 32-bit halves; no partial sum reaches 2**64.
    middle = high * bound_low + ((low * bound_low) >> _U32)
    carry = (low * bound_high + (middle & _LOW_U32)) >> _U32
    return (high * bound_high + (middle >> _U32) + carry).astype(np.int64)


def normals(key: int, shape: tuple[int, ...], std: float, offset: int = 0) -> np.ndarray:
    """Nearly normal numbers of mean 0 and standard deviation `std`: float32, of `shape`.

    Number i (in C order, counted from `offset` numbers into the stream) is the sum of the 12 uint16 in
    words [3i, 3i + 3), less its mean, as an integer, times std / 65536 in ONE float64 multiplication,
    rounded once to float32. This is the Irwin-Hall distribution: bounded at 6 std, kurtosis 2.9 where a
    true normal has 3. No logarithm and no sine, whose last bits differ between platforms.
    """
    out = np.empty(math.prod(shape), np.float32)
    scale = std / _IRWIN_HALL_UNIT
    stream = _stream_at(key, WORDS_PER_NORMAL * offset)
    for start in range(0, out.size, _CHUNK):
        part = out[start : start + _CHUNK]
        words = stream.random_raw(WORDS_PER_NORMAL * part.size)
        part[...] = (_sums_of_12(words) - _IRWIN_HALL_MEAN) * scale
    return out.reshape(shape)


def _sums_of_12(words: np.ndarray) -> np.ndarray:
    """Sums of the 12 uint16 in each 3 words: (3N,) uint64 -> (N,) int64.

    Two 32-bit lanes add side by side in one word; six uint16 cannot overflow a lane.
    """
    lanes = (words & _EVEN_U16) + ((words >> _U16) & _EVEN_U16)
    lanes = lanes[0::3] + lanes[1::3] + lanes[2::3]
    return ((lanes & _LOW_U32) + (lanes >> _U32)).astype(np.int64)
