"""Statistics of onstage.random, seeded: each p-value is that of one fixed experiment, so the tests never change their mind.

A sound generator fails about one of the few hundred comparisons at the 1e-4 level in fifty rewrites; a biased one fails at 1e-10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import onstage as ons
from onstage.ops.random import bits as random_bits
from onstage.ops.random.words import NumpyWords, mixed

random = ons.random
LEVEL = 1e-4
SEEDS = 1001


def normal_p(z: Any) -> Any:
    """The two-sided p-value of standard normal statistics."""
    return 2 * stats.norm.sf(np.abs(z))


def smallest(p: Any) -> float:
    """The smallest of many p-values, corrected for their number."""
    p = np.asarray(p)
    return float(1 - (1 - p.min()) ** p.size)


def uniformity(cells: Any, count: int) -> float:
    """chi-square of numbers below `count`."""
    return float(stats.chisquare(np.bincount(np.asarray(cells, np.int64).reshape(-1), minlength=count)).pvalue)


def correlation_p(x: Any, y: Any) -> Any:
    """Of uncorrelated numbers of mean 0 and variance 1, along the last axis."""
    return normal_p((x * y).sum(-1) / np.sqrt(x.shape[-1]))


def standard(words: Any) -> Any:
    """uint32 words as numbers of mean 0 and variance 1."""
    return (words.astype(np.float64) - (2.0**31 - 0.5)) / (2.0**32 / np.sqrt(12))


def bit_counts(words: Any) -> Any:
    """How often each bit is set, over all words."""
    flat = np.ascontiguousarray(words).reshape(-1)
    return np.unpackbits(flat.view(np.uint8).reshape(flat.size, -1), axis=1).sum(0, dtype=np.int64)


def assert_words(words: Any) -> None:
    """uint32 words behave as independent and uniform ones in a battery of tests."""
    flat = words.reshape(-1)
    n = flat.size
    for shift in (0, 8, 16, 24):
        assert uniformity(flat >> np.uint32(shift) & np.uint32(255), 256) > LEVEL
    pairs = flat[: n // 2 * 2].reshape(-1, 2)
    for shift in (0, 24):
        first, second = ((pairs[:, i] >> np.uint32(shift)) & np.uint32(255) for i in (0, 1))
        assert uniformity((first >> np.uint32(3)) * 32 + (second >> np.uint32(3)), 1024) > LEVEL
        assert uniformity((first & np.uint32(31)) * 32 + (second & np.uint32(31)), 1024) > LEVEL
    assert smallest(normal_p((bit_counts(flat) - n / 2) / np.sqrt(n / 4))) > LEVEL
    x = standard(flat)
    assert smallest([correlation_p(x[lag:], x[:-lag]) for lag in (*range(1, 33), 64, 100, 1000)]) > LEVEL
    assert smallest([correlation_p(x[lag:] ** 2 * 1.1180339887498949 - 1.118033988749895, x[:-lag]) for lag in range(1, 17)]) > LEVEL
    assert stats.kstest(flat / 2.0**32, "uniform").pvalue > LEVEL
    assert birthdays(flat) > LEVEL


def birthdays(words: Any) -> float:
    """Marsaglia's birthday spacings: in 4,096 of 2**32 days, how many spacings are equal; Poisson of mean 4 for each year."""
    years = words[: words.size // 4096 * 4096].reshape(-1, 4096)
    spacings = np.sort(np.diff(np.sort(years, axis=1), axis=1), axis=1)
    equal = int((np.diff(spacings, axis=1) == 0).sum())
    mean = 4.0 * len(years)
    return float(min(1.0, 2 * min(stats.poisson.cdf(equal, mean), stats.poisson.sf(equal - 1, mean))))


def first_words(keys: Any, count: int) -> Any:
    """[keys, count] words: the streams of many keys."""
    return ons.vmap(lambda k: random.bits(k, (count,)))(keys)


def seed_keys(count: int) -> Any:
    return ons.vmap(random.key)(np.arange(count))


# ------------------------------------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("seed", [0, 1, 42, 2**63])
def test_one_stream(seed: int) -> None:
    assert_words(random.bits(random.key(seed), (1 << 19,)))


@pytest.mark.parametrize("seed", [0, 42])
def test_both_halves_of_64_bit_words(seed: int) -> None:
    words = random.bits(random.key(seed), (1 << 18,), np.uint64)
    low = words.view(np.uint32).reshape(-1, 2)
    assert_words(low[:, 0])
    assert_words(low[:, 1])
    assert_words(low)


def test_narrow_words() -> None:
    assert uniformity(random.bits(random.key(5), (1 << 18,), np.uint8), 256) > LEVEL
    assert uniformity(random.bits(random.key(5), (1 << 20,), np.uint16), 65536) > LEVEL


def test_raw_keys_need_no_good_digits() -> None:
    """What the generator under it wants of its keys, the hash before it sees to: keys 0, 1, 2, ... will do."""
    for keys in (np.arange(1 << 13, dtype=np.uint64), np.arange(1 << 13, dtype=np.uint64) << np.uint64(40)):
        words = first_words(keys, 32)
        assert_words(words)
        assert_words(words.T.copy())


# ----------------------------------------------------------------------------------------------------- keys and their streams


def test_hash_avalanche() -> None:
    """Turning any one or two bits of a word turns every bit of its hash half the time: of random words, small ones, high ones."""
    m = NumpyWords()
    rng = np.random.default_rng(0)
    n = 1 << 13
    for words in (
        rng.integers(0, 2**64, n, dtype=np.uint64),
        np.arange(n, dtype=np.uint64),
        np.arange(n, dtype=np.uint64) << np.uint64(50),
    ):
        base = mixed(m, words)
        masks = [1 << i for i in range(64)] + [
            (1 << i) | (1 << j) for i in range(64) for j in (i * 7 % 64, (i + 32) % 64, (i + 1) % 64) if i != j
        ]
        scores = np.array([bit_counts(base ^ mixed(m, words ^ np.uint64(mask))) for mask in masks])
        # Small words overlap each other's neighbours, so a little slack beyond independence
        assert np.abs((scores - n / 2) / np.sqrt(n / 4)).max() < 6.5


@pytest.mark.parametrize("bits", [32, 64])
def test_generator_avalanche(bits: int) -> None:
    """Turning one bit of the counter or of the key turns every bit of the number half the time, for keys that are hashes."""
    m = NumpyWords()
    n = 1 << 13
    keys = mixed(m, np.arange(n, dtype=np.uint64))
    counters = np.arange(n, dtype=np.uint64)[::-1].copy()
    base = random_bits.squares(m, counters, keys, bits)
    turned = [random_bits.squares(m, counters ^ np.uint64(1 << i), keys, bits) for i in range(40)]
    turned += [random_bits.squares(m, counters, keys ^ np.uint64(1 << i), bits) for i in range(64)]
    kind = np.uint32 if bits == 32 else np.uint64
    scores = np.array([bit_counts((base ^ t).astype(kind)) for t in turned])
    assert np.abs((scores - n / 2) / np.sqrt(n / 4)).max() < 6


def test_bits_of_derived_keys_are_balanced() -> None:
    parent = random.key(0)
    many = np.arange(1 << 13)
    families = [
        seed_keys(1 << 13),
        random.split(parent, 1 << 13),
        ons.vmap(lambda i: random.fold_in(parent, i))(many),
    ]
    for keys in families:
        assert np.unique(keys).size == keys.size
        assert smallest(normal_p((bit_counts(keys) - keys.size / 2) / np.sqrt(keys.size / 4))) > LEVEL
        assert uniformity(keys >> np.uint64(56), 256) > LEVEL
        assert uniformity(keys & np.uint64(255), 256) > LEVEL
        assert smallest(normal_p((bit_counts(keys[1:] ^ keys[:-1]) - keys.size / 2) / np.sqrt(keys.size / 4))) > LEVEL


def assert_independent(keys: Any, count: int = 1024) -> None:
    """The streams of many keys: each uniform, no two of them correlated at small lags, together a good stream in both orders."""
    words = first_words(keys, count)
    x = standard(words)
    assert smallest(normal_p(x.sum(1) / np.sqrt(count))) > LEVEL
    assert stats.kstest(normal_p(x.sum(1) / np.sqrt(count)), "uniform").pvalue > LEVEL
    assert (
        smallest(
            stats.chi2.sf(
                ((np.stack([np.bincount(w >> np.uint32(28), minlength=16) for w in words]) - count / 16) ** 2).sum(1) / (count / 16),
                15,
            )
        )
        > LEVEL
    )
    for lag in (0, 1, 2):
        shifted = x[:, lag:] @ x[:, : count - lag].T / np.sqrt(count - lag)
        others = shifted[~np.eye(len(keys), dtype=bool)] if lag == 0 else shifted
        assert smallest(normal_p(others)) > LEVEL
    assert_words(words)
    assert_words(words.T.copy())


def test_independence_over_seeds_0_to_1000() -> None:
    assert_independent(seed_keys(SEEDS))


def test_independence_of_sequential_fold_ins() -> None:
    parent = random.key(1)
    assert_independent(ons.vmap(lambda i: random.fold_in(parent, i))(np.arange(SEEDS)))
    chain = [parent]
    for _ in range(500):
        chain.append(random.fold_in(chain[-1], 0))
    assert np.unique(chain).size == len(chain)
    assert_independent(np.stack(chain))


def test_independence_in_a_split_tree_of_depth_8() -> None:
    """All 511 keys of the binary tree, parents with their children."""
    level = np.asarray(random.key(2)).reshape(1)
    tree = [level]
    for _ in range(8):
        level = ons.vmap(random.split)(level).reshape(-1)
        tree.append(level)
    keys = np.concatenate(tree)
    assert keys.size == 511 and np.unique(keys).size == 511
    assert_independent(keys)


@pytest.mark.parametrize("name", ["uniform", "normal"])
def test_streams_of_neighbouring_seeds(name: str) -> None:
    """key(s) against key(s + 1), seed by seed, at many lags both ways."""
    draw: Callable[..., Any] = getattr(random, name)
    x = ons.vmap(lambda k: draw(k, (512,)))(seed_keys(SEEDS))
    x = (x - 0.5) * np.sqrt(12) if name == "uniform" else x
    p = [correlation_p(x[:-1, lag:], x[1:, : 512 - lag]) for lag in range(8)] + [
        correlation_p(x[1:, lag:], x[:-1, : 512 - lag]) for lag in range(1, 8)
    ]
    assert smallest(np.concatenate(p)) > LEVEL
    assert stats.kstest(np.concatenate(p), "uniform").pvalue > LEVEL


def test_numbers_of_a_key_are_independent_of_those_of_its_children() -> None:
    keys = seed_keys(300)
    parents = standard(first_words(keys, 256))
    for derive in (
        lambda k: random.split(k)[0],
        lambda k: random.split(k)[1],
        lambda k: random.fold_in(k, 0),
    ):
        children = standard(first_words(ons.vmap(derive)(keys), 256))
        assert smallest(correlation_p(parents, children)) > LEVEL


# ------------------------------------------------------------------------------------------------------------- distributions

N = 200_000
DRAWS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "uniform": (lambda k, d: random.uniform(k, (N,), d), stats.uniform()),
    "uniform -3 to 5": (lambda k, d: random.uniform(k, (N,), d, -3, 5), stats.uniform(-3, 8)),
    "normal": (lambda k, d: random.normal(k, (N,), d), stats.norm()),
    "exponential": (lambda k, d: random.exponential(k, (N,), d), stats.expon()),
    "gumbel": (lambda k, d: random.gumbel(k, (N,), d), stats.gumbel_r()),
    "truncated -1 to 2": (lambda k, d: random.truncated_normal(k, -1, 2, (N,), d), stats.truncnorm(-1, 2)),
    "truncated 0.5 to inf": (
        lambda k, d: random.truncated_normal(k, 0.5, np.inf, (N,), d),
        stats.truncnorm(0.5, np.inf),
    ),
    "truncated -9 to -6": (lambda k, d: random.truncated_normal(k, -9, -6, (N,), d), stats.truncnorm(-9, -6)),
}


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", DRAWS)
def test_distribution(name: str, kind: str) -> None:
    """Moments up to the fourth, Kolmogorov-Smirnov, chi-square of deciles of pairs, lag correlation, the tails."""
    draw, law = DRAWS[name]
    x = draw(random.key(11), kind).astype(np.float64)
    mean, variance, skew, kurtosis = (float(v) for v in law.stats("mvsk"))
    z = (x - mean) / np.sqrt(variance)
    for power, wanted in ((1, 0.0), (2, 1.0), (3, skew), (4, kurtosis + 3)):
        spread = np.std(z**power)
        assert abs(np.mean(z**power) - wanted) < 4.5 * spread / np.sqrt(N), power
    assert stats.kstest(x, law.cdf).pvalue > LEVEL
    u = law.cdf(x)
    deciles = np.minimum((u * 10).astype(int), 9)
    assert uniformity(deciles[::2] * 10 + deciles[1::2], 100) > LEVEL
    assert smallest([correlation_p(z[lag:], z[:-lag]) for lag in range(1, 20)]) > LEVEL
    for tail in (np.sum(u < 1e-3), np.sum(u > 1 - 1e-3)):
        assert stats.binomtest(int(tail), N, 1e-3).pvalue > LEVEL


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["normal", "exponential", "gumbel"])
def test_narrow_distribution(name: str, kind: str) -> None:
    law = DRAWS[name][1]
    x = DRAWS[name][0](random.key(12), kind).astype(np.float64)
    mean, variance = (float(v) for v in law.stats("mv"))
    assert abs(x.mean() - mean) < 0.01 and abs(x.var() / variance - 1) < 0.02
    edges = np.quantile(x, np.linspace(0.05, 0.95, 10))
    assert np.abs(np.mean(x[:, None] <= edges, axis=0) - law.cdf(edges)).max() < (0.01 if kind == "float16" else 0.02)


def test_two_normals_of_one_word_or_two_are_independent_of_neighbours() -> None:
    """Box and Muller's pairs: radius and angle come of different bits."""
    for kind in ("float32", "float64"):
        x = random.normal(random.key(13), (2 * N,), kind).astype(np.float64).reshape(-1, 2)
        angle = np.arctan2(x[:, 0], x[:, 1]) / (2 * np.pi) + 0.5
        assert stats.kstest(angle, "uniform").pvalue > LEVEL
        assert stats.kstest(np.sum(x**2, axis=1) / 2, "expon").pvalue > LEVEL


@pytest.mark.parametrize("p", [1e-4, 0.1, 0.5, 0.75])
def test_bernoulli(p: float) -> None:
    x = random.bernoulli(random.key(14), p, (N,))
    assert x.dtype == np.bool_
    assert stats.binomtest(int(x.sum()), N, p).pvalue > LEVEL
    pairs = np.bincount(x[::2] * 2 + x[1::2].astype(int), minlength=4)
    assert stats.chisquare(pairs, np.array([(1 - p) ** 2, p * (1 - p), p * (1 - p), p * p]) * N / 2).pvalue > LEVEL


def test_categorical() -> None:
    logits = np.array([[0.0, 1.0, -2.0, 0.5], [3.0, 3.0, 3.0, 3.0]])
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for kind in ("float32", "float64"):
        x = random.categorical(random.key(15), logits.astype(kind), shape=(N // 2, 2))
        for row in (0, 1):
            assert stats.chisquare(np.bincount(x[:, row], minlength=4), p[row] * N / 2).pvalue > LEVEL
        table = np.histogram2d(x[:, 0], x[:, 1], bins=(4, 4))[0]
        assert stats.chi2_contingency(table).pvalue > LEVEL


def test_permutation() -> None:
    """All 120 orders of five elements, and each element at each place of twenty."""
    orders = ons.vmap(lambda k: random.permutation(k, 5))(random.split(random.key(16), 60_000))
    codes = orders @ np.array([10000, 1000, 100, 10, 1])
    assert stats.chisquare(np.unique(codes, return_counts=True)[1]).pvalue > LEVEL
    assert np.unique(codes).size == 120
    places = ons.vmap(lambda k: random.permutation(k, 20))(random.split(random.key(17), 20_000))
    counts = np.stack([np.bincount(places[:, i], minlength=20) for i in range(20)])
    assert stats.chi2.sf(((counts - 1000) ** 2 / 1000).sum(), 19 * 19) > LEVEL


def test_choice() -> None:
    assert uniformity(random.choice(random.key(18), 1000, (N,)), 1000) > LEVEL
    p = np.array([0.1, 0.2, 0.0, 0.65, 0.05])
    counts = np.bincount(random.choice(random.key(19), 5, (N,), p=p), minlength=5)
    assert counts[2] == 0
    assert stats.chisquare(counts[p > 0], p[p > 0] * N).pvalue > LEVEL
    keys = random.split(random.key(20), 40_000)
    pairs = ons.vmap(lambda k: random.choice(k, 6, (2,), replace=False))(keys)
    assert uniformity(np.unique(pairs @ np.array([6, 1]), return_inverse=True)[1], 30) > LEVEL
    # One after the other: the second is drawn with the probabilities that are left
    pairs = ons.vmap(lambda k: random.choice(k, 5, (2,), replace=False, p=p))(keys)
    wanted = np.array([p[i] * p[j] / (1 - p[i]) for i in range(5) for j in range(5) if i != j and p[i] > 0 and p[j] > 0])
    got = np.array(
        [np.sum((pairs[:, 0] == i) & (pairs[:, 1] == j)) for i in range(5) for j in range(5) if i != j and p[i] > 0 and p[j] > 0]
    )
    assert got.sum() == len(keys)
    assert stats.chisquare(got, wanted * len(keys)).pvalue > LEVEL


def test_dropout() -> None:
    for rate in (0.1, 0.5, 0.9):
        y = ons.nn.dropout(np.ones((400, 500), np.float32), rate, random.key(21))
        kept = y != 0
        assert stats.binomtest(int(kept.sum()), kept.size, 1 - rate).pvalue > LEVEL
        assert abs(y.mean() - 1) < 5 * np.sqrt(rate / (1 - rate) / y.size)
        for axis in (0, 1):
            counts = kept.sum(axis)
            expected = kept.shape[axis] * (1 - rate)
            assert stats.chi2.sf(((counts - expected) ** 2 / (expected * rate)).sum(), counts.size) > LEVEL
        x = (kept - (1 - rate)) / np.sqrt(rate * (1 - rate))
        assert smallest([correlation_p(x.reshape(-1)[lag:], x.reshape(-1)[:-lag]) for lag in (1, 2, 499, 500, 501, 1000)]) > LEVEL
