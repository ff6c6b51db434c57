"""onstage.random: values and dtypes alike in the interpreter and on ONNX Runtime, keys, vmap, loops, named dims, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from scipy import special

import onstage as ons
from onstage.export import kernels
from onstage.ops.random.quantiles import ndtr, ndtri
from onstage.ops.random.words import FACTORS, START, NumpyWords, mixed
from onstage.stage.interpreter import evaluate

random = ons.random
KEY = random.key(0)
FLOATS = ("float16", "bfloat16", "float32", "float64")
P = np.array([0.2, 0.0, 0.5, 0.3])


def dtype(name: str) -> Any:
    return ons.ArraySpec((), name).dtype


def both(function: Callable[..., Any], *args: Any, example: Any = None) -> list[tuple[Any, Any]]:
    """(interpreter, ONNX Runtime) of the staged function, at both levels; eager gives what the interpreter gives."""
    program = ons.stage(function, *(args if example is None else example))
    leaves = [np.asarray(a) for a in args]
    expected = evaluate(program.program, leaves)
    eager = function(*args)
    for e, x in zip(eager if isinstance(eager, tuple) else (eager,), expected, strict=True):
        assert e.dtype == x.dtype and np.array_equal(e, x)
    pairs = []
    for level in ("none", "all"):
        with ons.config(optimization=level):
            got = program(*args)
        for g, x in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
            assert g.dtype == x.dtype and g.shape == x.shape
            pairs.append((x, g))
    return pairs


EXACT: dict[str, Callable[[Any], Any]] = {
    **{f"bits {d}": lambda k, d=d: random.bits(k, (3, 700), d) for d in ("uint8", "uint16", "uint32", "uint64")},
    **{f"uniform {d}": lambda k, d=d: random.uniform(k, (3, 700), d) for d in FLOATS},
    **{f"uniform {d} -1 to 3": lambda k, d=d: random.uniform(k, (2000,), d, -1, 3) for d in FLOATS},
    **{f"uniform {d} 100 to 101": lambda k, d=d: random.uniform(k, (2000,), d, 100, 101) for d in FLOATS},
    "uniform of arrays": lambda k: random.uniform(k, (500, 2), minval=np.array([0.0, 2.0]), maxval=np.array([1.0, 2.0])),
    "uniform 0-d": lambda k: random.uniform(k),
    "uniform empty": lambda k: random.uniform(k, (0, 3)),
    "bernoulli": lambda k: random.bernoulli(k, shape=(5000,)),
    "bernoulli of array": lambda k: random.bernoulli(k, np.linspace(0, 1, 300, dtype=np.float32)),
    "permutation": lambda k: random.permutation(k, 2000),
    "permutation of array": lambda k: random.permutation(k, np.arange(60, dtype=np.float32).reshape(20, 3)),
    "choice": lambda k: random.choice(k, 12345, (50, 40)),
    "choice of array": lambda k: random.choice(k, np.arange(10, dtype=np.int8), (300,)),
    "choice p": lambda k: random.choice(k, 4, (3000,), p=P),
    "choice once": lambda k: random.choice(k, 300, (10, 20), replace=False),
    "choice once p": lambda k: random.choice(k, 4, (3,), replace=False, p=P),
    "split": lambda k: random.split(k, 700),
    "fold_in": lambda k: random.fold_in(k, -5),
    "truncated_normal": lambda k: random.truncated_normal(k, -1.5, 0.7, (20000,)),
    "truncated_normal float32": lambda k: random.truncated_normal(k, 0.5, np.inf, (5000,), np.float32),
}


@pytest.mark.parametrize("name", EXACT)
def test_equal_bit_for_bit_in_interpreter_and_runtime(name: str) -> None:
    for expected, got in both(EXACT[name], random.key(7), example=(KEY,)):
        assert np.array_equal(expected, got)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", ["normal", "gumbel", "exponential", "truncated_normal"])
def test_equal_to_4_units_in_the_last_place(name: str, kind: str) -> None:
    bounds = (-2.0, 1.25) if name == "truncated_normal" else ()
    for expected, got in both(lambda k: getattr(random, name)(k, *bounds, (100_000,), kind), random.key(3), example=(KEY,)):
        exact, size = expected.astype(np.float64), np.abs(expected)
        unit = (np.nextafter(size, size.dtype.type(np.inf)) - size).astype(np.float64)
        assert np.all(np.abs(got.astype(np.float64) - exact) <= 4 * unit)
        assert np.all(np.isfinite(exact))


def test_categorical_agrees_but_for_ties() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 7))
    for kind in FLOATS:
        for expected, got in both(lambda k, x: random.categorical(k, x, shape=(200, 50)), random.key(1), logits.astype(dtype(kind))):
            assert expected.dtype == np.int64
            assert np.mean(expected != got) < 1e-3
            assert expected.min() == 0 and expected.max() == 6


def test_known_values() -> None:
    """Programs that were saved must go on giving the numbers they gave: a change here is a new version of the primitives."""
    assert int(random.key(0)) == 14716607240356612257
    assert random.split(KEY).tolist() == [13995506257752018242, 14668551137590985866]
    assert int(random.fold_in(KEY, 3)) == 5571000558190529037
    assert random.bits(KEY, (3,)).tolist() == KNOWN["bits"]
    assert random.bits(KEY, (2,), np.uint64).tolist() == KNOWN["words"]
    assert random.uniform(KEY, (2,)).tolist() == KNOWN["uniform"]
    assert random.permutation(KEY, 8).tolist() == KNOWN["permutation"]
    np.testing.assert_allclose(random.normal(KEY, (2,)), KNOWN["normal"], rtol=1e-14)
    np.testing.assert_allclose(random.normal(KEY, (2,), np.float32), KNOWN["normal float32"], rtol=1e-6)


KNOWN: dict[str, Any] = {
    "bits": [440007323, 3886603594, 2165951847],
    "words": [1889817065379381925, 16692835333076163175],
    "uniform": [0.10244718839422529, 0.9049204166531982],
    "permutation": [0, 5, 4, 2, 7, 3, 6, 1],
    "normal": [0.028835807055479296, 0.16502975649753887],
    "normal float32": [1.3624901, -0.4468609],
}


# ---------------------------------------------------------------------------------------------------------------------- keys


def test_a_key_is_an_ordinary_array() -> None:
    assert isinstance(KEY, np.ndarray) and KEY.shape == () and KEY.dtype == np.uint64
    keys = random.split(KEY, (2, 3))
    assert keys.shape == (2, 3) and keys.dtype == np.uint64
    assert np.array_equal(keys.reshape(-1), random.split(KEY, 6))
    assert np.array_equal(random.uniform(keys[0, 1]), random.uniform(np.asarray(keys[0, 1])))
    assert random.split(KEY, 0).shape == (0,)


def test_seeds_and_data_may_be_traced_and_wrap_around() -> None:
    for seed in (0, 3, -1, 2**62):
        assert int(ons.stage(random.key, 5)(seed)) == int(random.key(seed))
        assert int(ons.stage(random.fold_in, KEY, 5)(KEY, seed)) == int(random.fold_in(KEY, seed))
    assert random.key(-1) == random.key(2**64 - 1)
    for kind in (np.int8, np.uint32, np.int64):
        assert int(ons.stage(random.key, kind(5))(kind(7))) == int(random.key(7))
    assert int(random.key(np.int8(-1))) == int(random.key(-1))


def test_keys_of_one_parent_are_all_different() -> None:
    children = np.concatenate(
        [
            random.split(KEY, 5000),
            [random.fold_in(KEY, i) for i in range(300)],
            [random.key(i) for i in range(300)],
        ]
    )
    assert np.unique(children).size == children.size
    assert KEY not in children[:5000]


def test_mixing_is_a_bijection() -> None:
    m = NumpyWords()
    words = np.random.default_rng(0).integers(0, 2**64, 2000, dtype=np.uint64)

    def unrotated(x: int) -> int:
        return (x >> 27 | x << 37) & (2**64 - 1)

    def unsquared(x: int, factor: int) -> int:
        # The root of y (2 y + c) = x modulo 2**64, bit by bit
        y = 0
        for i in range(64):
            if (y * (2 * y + factor) - x) >> i & 1:
                y |= 1 << i
        return y

    for word, result in zip(words.tolist()[:50], mixed(m, words).tolist()[:50], strict=True):
        for factor in reversed(FACTORS):
            result = unsquared(unrotated(result), factor)
        assert (result - START) % 2**64 == word
    assert np.unique(mixed(m, words)).size == words.size


def test_a_key_through_jit_scan_and_while() -> None:
    def step(key: Any, _: Any) -> Any:
        key, use = random.split(key)
        return key, random.normal(use, (2,))

    program = ons.stage(lambda k: ons.scan(step, k, None, length=4), KEY)
    last, rows = program(random.key(5))
    key = random.key(5)
    for row in rows:
        key, use = random.split(key)
        np.testing.assert_allclose(row, random.normal(use, (2,)), rtol=1e-14)
    assert last == key

    looped = ons.stage(lambda k: ons.fori_loop(0, 3, lambda i, k: random.fold_in(k, i), k), KEY)
    key = random.key(2)
    for i in range(3):
        key = random.fold_in(key, i)
    assert looped(random.key(2)) == key


VMAPPED: dict[str, Callable[[Any], Any]] = {
    "bits": lambda k: random.bits(k, (3,)),
    "uniform": lambda k: random.uniform(k, (2, 2), np.float32, -1, 1),
    "normal": lambda k: random.normal(k, (3,)),
    "normal float32": lambda k: random.normal(k, (), np.float32),
    "gumbel": lambda k: random.gumbel(k, (3,), np.float16),
    "exponential": lambda k: random.exponential(k),
    "truncated_normal": lambda k: random.truncated_normal(k, -1, 1, (3,)),
    "bernoulli": lambda k: random.bernoulli(k, 0.3, (7,)),
    "categorical": lambda k: random.categorical(k, np.zeros((2, 4)), shape=(5, 2)),
    "permutation": lambda k: random.permutation(k, 6),
    "permutation of array": lambda k: random.permutation(k, np.arange(6.0).reshape(3, 2)),
    "choice": lambda k: random.choice(k, 100, (4,)),
    "choice p": lambda k: random.choice(k, np.arange(4.0), (4,), p=P),
    "choice once": lambda k: random.choice(k, 10, (3,), replace=False),
    "choice once p": lambda k: random.choice(k, 4, (2,), replace=False, p=P),
    "split": lambda k: random.split(k, 3),
    "fold_in": lambda k: random.fold_in(k, 9),
    "dropout": lambda k: ons.nn.dropout(np.ones(5), 0.5, k),
}


@pytest.mark.parametrize("name", VMAPPED)
def test_vmap_over_keys_equals_the_loop(name: str) -> None:
    function = VMAPPED[name]
    keys = random.split(random.key(1), 4)
    expected = np.stack([function(k) for k in keys])
    got = ons.vmap(function)(keys)
    assert got.dtype == expected.dtype and np.array_equal(got, expected)
    staged = ons.stage(ons.vmap(function), keys)(keys)
    assert staged.dtype == expected.dtype
    np.testing.assert_allclose(staged, expected, rtol=1e-3 if expected.dtype == np.float16 else 1e-6)
    nested = ons.vmap(ons.vmap(function))(keys.reshape(2, 2))
    assert np.array_equal(nested.reshape(expected.shape), expected)


def test_vmap_over_seeds_data_and_parameters() -> None:
    seeds = np.arange(5)
    assert ons.vmap(random.key)(seeds).tolist() == [int(random.key(int(s))) for s in seeds]
    assert ons.vmap(lambda i: random.fold_in(KEY, i))(seeds).tolist() == [int(random.fold_in(KEY, int(s))) for s in seeds]
    p = np.array([0.1, 0.5, 0.9])
    assert np.array_equal(
        ons.vmap(lambda q: random.bernoulli(KEY, q, (50,)))(p),
        np.stack([random.bernoulli(KEY, q, (50,)) for q in p]),
    )


# ---------------------------------------------------------------------------------------------------------------- named dims


def test_shapes_of_named_dims_at_every_size() -> None:
    def draw(key: Any, x: Any) -> Any:
        n = x.shape[0]
        a, b, c, d, e, f = random.split(key, 6)
        return (
            random.normal(a, (2, n), x.dtype),
            random.permutation(b, x),
            random.permutation(b, n),
            ons.nn.dropout(x, 0.5, c),
            random.split(d, n),
            random.uniform(e, (n, 2 * n)),
            random.categorical(f, x),
            random.bernoulli(a, 0.5, (n,)),
        )

    program = ons.stage(draw, specs=(ons.ArraySpec((), "uint64"), ons.ArraySpec(("B", 3), "float32")))
    for size in (0, 1, 2, 9):
        x = np.arange(3.0 * size, dtype=np.float32).reshape(size, 3)
        got, expected = program(KEY, x), draw(KEY, x)
        for g, e in zip(got, expected, strict=True):
            assert g.dtype == e.dtype and g.shape == e.shape
            np.testing.assert_allclose(g, e, rtol=1e-6)
    choices = ons.stage(
        lambda k, x: (random.choice(k, x.shape[0], (4,)), random.choice(k, x, (x.shape[0],), replace=False)),
        specs=(ons.ArraySpec((), "uint64"), ons.ArraySpec(("B",), "int64")),
    )
    for size in (1, 5):
        places, elements = choices(KEY, np.arange(size))
        assert np.array_equal(places, random.choice(KEY, size, (4,)))
        assert sorted(elements) == list(range(size))


# --------------------------------------------------------------------------------------------------------------- gradients


def test_gradients_of_reparameterised_samples() -> None:
    u = random.uniform(KEY, (6,))

    def total(low: Any, high: Any) -> Any:
        return np.sum(random.uniform(KEY, (6,), np.float64, low, high))

    for gradient in (ons.grad(total, argnums=(0, 1)), ons.stage(ons.grad(total, argnums=(0, 1)), 1.0, 3.0)):
        low, high = gradient(1.0, 3.0)
        np.testing.assert_allclose(low, np.sum(1 - u), rtol=1e-12)
        np.testing.assert_allclose(high, np.sum(u), rtol=1e-12)

    def energy(mean: Any, deviation: Any) -> Any:
        return np.mean((mean + deviation * random.normal(KEY, (8,))) ** 2)

    z = random.normal(KEY, (8,))
    mean, deviation = ons.stage(ons.grad(energy, argnums=(0, 1)), 0.5, 2.0)(0.5, 2.0)
    np.testing.assert_allclose(mean, np.mean(2 * (0.5 + 2 * z)), rtol=1e-12)
    np.testing.assert_allclose(deviation, np.mean(2 * (0.5 + 2 * z) * z), rtol=1e-12)


def test_gradients_of_truncated_normal() -> None:
    def total(low: Any, high: Any) -> Any:
        return np.sum(random.truncated_normal(KEY, low, high, (20,)))

    for low, high in ((-1.0, 2.0), (0.5, 3.0), (-4.0, -3.0)):
        got = ons.stage(ons.grad(total, argnums=(0, 1)), 1.0, 1.0)(low, high)
        step = 1e-6
        wanted = [
            (total(low + step, high) - total(low - step, high)) / (2 * step),
            (total(low, high + step) - total(low, high - step)) / (2 * step),
        ]
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)
    low, high = ons.grad(total, argnums=(0, 1))(-np.inf, 1.0)
    assert low == 0 and np.isfinite(high)


def test_gradients_follow_permuted_and_chosen_elements() -> None:
    x, weights = np.arange(5.0), np.array([1.0, 2, 3, 4, 5])
    places = random.permutation(KEY, 5)
    expected = np.zeros(5)
    expected[places] = weights
    assert np.array_equal(ons.grad(lambda x: np.sum(random.permutation(KEY, x) * weights))(x), expected)
    chosen = random.choice(KEY, 5, (40,))
    assert np.array_equal(ons.grad(lambda x: np.sum(random.choice(KEY, x, (40,))))(x), np.bincount(chosen, minlength=5))


# --------------------------------------------------------------------------------------------------------- ends of the ranges


def test_uniform_stays_below_maxval() -> None:
    for kind in FLOATS:
        for low, high in ((0, 1), (1, 2), (100, 101), (-1, 0), (0.1, 0.1)):
            x = random.uniform(KEY, (20000,), kind, low, high)
            bottom, top = np.asarray(low, x.dtype), np.asarray(high, x.dtype)
            assert np.all(x >= bottom) and (np.all(x < top) or low == high)
    # Rounded to the nearest of few numbers, with the upper end wrapped to the lower, all stay alike
    counts = np.unique(random.uniform(KEY, (40000,), "bfloat16", 100, 101).astype(np.float64), return_counts=True)
    assert counts[0].tolist() == [100.0, 100.5]
    assert abs(counts[1][0] - 20000) < 500


def test_probabilities_0_and_1_are_certain() -> None:
    assert not random.bernoulli(KEY, 0.0, (50000,)).any()
    assert random.bernoulli(KEY, 1, (50000,)).all()
    traced = ons.stage(lambda k, p: random.bernoulli(k, p, (1000,)), KEY, 0.5)
    assert not traced(KEY, 0.0).any() and traced(KEY, 1.0).all() and traced(KEY, 7.0).all() and not traced(KEY, np.nan).any()
    assert set(random.choice(KEY, 4, (20000,), p=P)) == {0, 2, 3}
    assert 1 not in random.choice(KEY, 4, (3,), replace=False, p=P)
    assert set(random.categorical(KEY, np.array([0.0, -np.inf, 1.0]), shape=(5000,))) == {0, 2}


def test_traced_probabilities_are_normalised() -> None:
    program = ons.stage(
        lambda k, p: (random.choice(k, 4, (5000,), p=p), random.choice(k, 4, (2,), replace=False, p=p)),
        KEY,
        P,
    )
    again, once = program(KEY, P * 8)
    assert np.array_equal(again, random.choice(KEY, 4, (5000,), p=P))
    assert np.array_equal(once, random.choice(KEY, 4, (2,), replace=False, p=P))


def test_keys_of_deferred_arrays_and_jit() -> None:
    deferred = random.normal(ons.array(random.key(4)), (3,))
    np.testing.assert_allclose(deferred.numpy(), random.normal(random.key(4), (3,)), rtol=1e-14)
    jitted = ons.jit(lambda k: random.bits(k, (3,)))
    assert np.array_equal(jitted(random.key(4)), random.bits(random.key(4), (3,)))


def test_truncated_normal_stays_inside() -> None:
    for low, high in (
        (-1, 1),
        (2, np.inf),
        (-np.inf, -3),
        (8, 9),
        (-0.001, 0.001),
        (36.5, 36.6),
        (40, 50),
        (-50, -40),
    ):
        for kind in FLOATS:
            x = random.truncated_normal(KEY, low, high, (3000,), kind)
            assert np.all(x >= np.asarray(low, x.dtype)) and np.all(x <= np.asarray(high, x.dtype))
            assert np.all(np.isfinite(x.astype(np.float64)))
    assert np.all(random.truncated_normal(KEY, 40, 50, (9,)) == 40)
    assert np.array_equal(random.truncated_normal(KEY, 1, 2, (9,)), -random.truncated_normal(KEY, -2, -1, (9,)))
    low = np.array([-1.0, 0.0, 5.0])
    assert np.all(random.truncated_normal(KEY, low, low + 1, (400, 3)) >= low)


def test_portable_normal_distribution_function() -> None:
    x = np.concatenate([np.linspace(-37, 9, 5001), [-np.inf, np.inf, 0.0]])
    np.testing.assert_allclose(ndtr(x), special.ndtr(x), rtol=1e-13)
    p = 10.0 ** np.linspace(-300, -1e-6, 5001)
    np.testing.assert_allclose(ndtri(p), special.ndtri(p), rtol=1e-14)


def test_choice_of_the_whole_is_a_permutation() -> None:
    assert sorted(random.choice(KEY, 50, (5, 10), replace=False).reshape(-1)) == list(range(50))
    x = np.arange(12.0).reshape(6, 2)
    y = random.permutation(KEY, x)
    assert y.shape == x.shape and np.array_equal(y[np.argsort(y[:, 0])], x)
    assert random.permutation(KEY, 0).shape == (0,) and random.permutation(KEY, np.int32(3)).dtype == np.int64
    assert random.choice(KEY, 0, (0,)).shape == (0,)
    assert random.choice(KEY, x, ()).shape == (2,)


# ------------------------------------------------------------------------------------------------------- kernels on CUDA


ON_CUDA: dict[str, Callable[..., Any]] = {
    **{n: f for n, f in EXACT.items() if n != "uniform empty"},
    **{f"{n} {d}": lambda k, n=n, d=d: getattr(random, n)(k, (9,), d) for n in ("normal", "gumbel", "exponential") for d in FLOATS},
    "categorical": lambda k: random.categorical(k, np.zeros(3, np.float32)),
    "dropout": lambda k: ons.nn.dropout(np.ones(9, np.float32), 0.1, k),
    "key": lambda k: random.key(k),
}


@pytest.mark.parametrize("name", ON_CUDA)
def test_every_node_has_a_kernel_on_cuda(name: str) -> None:
    model = onnx.shape_inference.infer_shapes(ons.stage(ON_CUDA[name], KEY).to_onnx())
    opset = next(o.version for o in model.opset_import if o.domain == "")
    graph = model.graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input, *graph.output)}
    types.update({i.name: i.data_type for i in graph.initializer})
    missing = []
    for node in graph.node:
        schema = onnx.defs.get_schema(node.op_type, opset)
        for names, formal in ((node.input, schema.inputs), (node.output, schema.outputs)):
            for i, name in enumerate(names):
                constraint = formal[min(i, len(formal) - 1)].type_str
                kind = onnx.helper.tensor_dtype_to_np_dtype(types[name])
                if not constraint.startswith("tensor(") and not kernels.has_kernel(
                    node.op_type, opset, kind, provider=kernels.CUDA, constraint=constraint
                ):
                    missing.append((node.op_type, kind.name))
    assert not missing
