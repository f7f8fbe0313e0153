"""Bits against published answers, mappings against whole numbers of Python, moments against theory."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import philox

# Known answers for philox4x64-10 that were published with the algorithm (Random123): counter, key, output.
KNOWN_ANSWERS = [
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
    (
        (2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1),
        (2**64 - 1, 2**64 - 1),
        (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
    ),
]

KEY = philox.key(0, "test")


def as_int(words: tuple[int, ...]) -> int:
    """Little-endian 64-bit words as one number."""
    return sum(word << (64 * i) for i, word in enumerate(words))


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_bits_are_the_published_ones(
    counter: tuple[int, ...], key: tuple[int, ...], output: tuple[int, ...]
) -> None:
    offset = (as_int(counter) - 1) * philox.WORDS_PER_BLOCK
    assert tuple(philox.bits_u64(as_int(key), 4, offset).tolist()) == output


@given(offset=st.integers(0, 50), n=st.integers(0, 50))
def test_any_part_of_a_stream_is_the_same_as_within_the_whole(offset: int, n: int) -> None:
    whole = philox.bits_u64(KEY, 100)
    assert np.array_equal(philox.bits_u64(KEY, n, offset), whole[offset : offset + n])


def test_keys_keep_seed_and_labels_apart() -> None:
    names = [
        (0, "ab", "c"),
        (0, "a", "bc"),
        (0, "abc"),
        (1, "abc"),
        (0, "a", 1),
        (0, "a", "1"),
        (0, "a1"),
        (1, "a"),
        (0, 1, "a"),
    ]
    keys = {philox.key(*name) for name in names}
    assert len(keys) == len(names)
    assert all(0 <= key < 2**128 for key in keys)


@given(
    words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8),
    bound=st.one_of(st.integers(1, 2**62), st.integers(0, 62).map(lambda k: 1 << k)),
)
def test_scaling_below_a_bound_is_exact(words: list[int], bound: int) -> None:
    got = philox.scale_below(np.array(words, np.uint64), bound)
    assert got.tolist() == [word * bound >> 64 for word in words]


def test_uniform_numbers_fill_their_range_evenly() -> None:
    n, bound = 100_000, 10
    counts = np.bincount(philox.uniform_below(KEY, n, bound), minlength=bound)
    chi_squared = float(((counts - n / bound) ** 2 / (n / bound)).sum())
    # 9 degrees of freedom: below 0.55 and above 45 with a chance of one in a million each.
    assert 0.5 < chi_squared < 45
    assert len(counts) == bound


@pytest.mark.parametrize("i", [0, 1, 7, philox._CHUNK - 1, philox._CHUNK, philox._CHUNK + 1])
def test_a_normal_number_is_the_scaled_sum_of_its_twelve_uint16(i: int) -> None:
    std = 0.02
    words = philox.bits_u64(KEY, 3, 3 * i).tolist()
    total = sum((word >> shift) & 0xFFFF for word in words for shift in (0, 16, 32, 48))
    expected = np.float32((total - 6 * 65535) * (std / 65536))
    assert philox.normals(KEY, (philox._CHUNK + 2,), std)[i] == expected
    assert philox.normals(KEY, (1,), std, offset=i)[0] == expected


def test_normals_take_any_shape() -> None:
    flat = philox.normals(KEY, (24,), 1.0)
    assert flat.dtype == np.float32
    assert np.array_equal(philox.normals(KEY, (2, 3, 4), 1.0), flat.reshape(2, 3, 4))
    assert philox.normals(KEY, (0, 5), 1.0).shape == (0, 5)
    assert philox.normals(KEY, (), 1.0) == flat[0]


def test_normals_have_the_moments_of_the_sum_of_twelve_uniforms() -> None:
    n = 1_000_000
    z = philox.normals(KEY, (n,), 1.0).astype(np.float64)
    mean, square, fourth = z.mean(), (z**2).mean(), (z**4).mean()
    # Moments 2, 4, 8 of the standardised sum of 12 uniforms: 1, 2.9, 85.63. Bounds: 5 standard errors.
    assert abs(mean) < 5 / math.sqrt(n)
    assert abs(square - 1) < 5 * math.sqrt((2.9 - 1) / n)
    assert abs(fourth - 2.9) < 5 * math.sqrt((85.63 - 2.9**2) / n)
    assert np.abs(z).max() <= 6


def irwin_hall_cdf(x: np.ndarray) -> np.ndarray:
    """Distribution function of the sum of 12 uniforms on [0, 1], by its textbook formula."""
    terms = [(-1) ** k * math.comb(12, k) * np.maximum(x - k, 0) ** 12 for k in range(13)]
    return np.sum(terms, axis=0) / math.factorial(12)


def test_normals_follow_their_distribution_function() -> None:
    n = 100_000
    x = np.sort(philox.normals(KEY, (n,), 1.0).astype(np.float64)) + 6
    x = x[x < 8]  # The alternating sum loses digits far above the middle.
    distance = np.abs(irwin_hall_cdf(x) - (np.arange(len(x)) + 0.5) / n).max()
    # Kolmogorov: sqrt(n) times the distance is above 2.5 with a chance of 1 in 130,000.
    assert math.sqrt(n) * distance < 2.5


def test_pinned_values() -> None:
    """Every run ever recorded rests on these: a change here makes all of them incomparable."""
    key = philox.key(1234, "weight", "wte.weight")
    assert f"{key:032x}" == "e5c82a3dd279e2fd633010a3ede76c35"
    assert [f"{word:016x}" for word in philox.bits_u64(key, 2)] == ["e93344d2472ca1c9", "21ac793faf8b957c"]
    assert philox.uniform_below(key, 4, 50304).tolist() == [45823, 6616, 5724, 5464]
    assert [float(x).hex() for x in philox.normals(key, (3,), 0.02)] == [
        "-0x1.5513340000000p-6",
        "-0x1.3551ec0000000p-7",
        "-0x1.4080000000000p-8",
    ]
