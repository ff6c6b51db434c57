"""einsum: NumPy's syntax, dtypes, gradients, named dims, the order of contraction, messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import onstage as ons

CASES: list[tuple[Any, ...]] = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("ij,kj->ki", (2, 3), (4, 3)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
    ("...ij,...jk", (2, 3, 4), (4, 5)),
    ("...ij,...jk", (2, 1, 3, 4), (5, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("bhqk,bkhd->bqhd", (2, 3, 4, 6), (2, 6, 3, 5)),
    ("ijk,jkl->il", (2, 3, 4), (3, 4, 5)),
    ("ijk,kjl->il", (2, 3, 4), (4, 3, 5)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("ijj->i", (2, 3, 3)),
    ("iji->j", (3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("ii,i->i", (3, 3), (3,)),
    ("ij->ji", (2, 3)),
    ("ba", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("a...b->b...a", (2, 3, 4)),
    ("i...->...", (3, 2)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ab,ab->ba", (2, 3), (2, 3)),
    ("ij,kl->ijkl", (2, 3), (4, 5)),
    (",i->i", (), (3,)),
    ("...,...", (2, 3), (2, 3)),
    ("i...,i...->...", (2, 3), (2, 1)),
    ("ij,j->i", (2, 3), (3,)),
    ("i,ij->j", (2,), (2, 3)),
    ("ij,jk->i", (2, 3), (3, 4)),
    ("ij,jk->ik", (2, 1), (5, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("ab,bc,ca->", (2, 3), (3, 4), (4, 2)),
    ("i,ij,j->", (3,), (3, 4), (4,)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ii->i", (0, 0)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
]
RTOL = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3}


def array(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, len(shape), *shape])
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 5, shape).astype(dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_einsum_is_numpys(case: tuple[Any, ...]) -> None:
    text, *shapes = case
    for dtype in ("float64", "float32", "float16", "int32", "int8", "uint64", "bool"):
        xs = [array(s, dtype, i) for i, s in enumerate(shapes)]
        want = np.asarray(np.einsum(text, *xs))
        for got in (ons.stage(lambda *xs: np.einsum(text, *xs), *xs)(*xs), ons.numpy.einsum(text, *xs)):
            assert got.dtype == want.dtype, dtype
            assert got.shape == want.shape, dtype
            if dtype in RTOL:
                np.testing.assert_allclose(got, want, rtol=RTOL[dtype], atol=RTOL[dtype] * 4, err_msg=dtype)
            else:
                np.testing.assert_array_equal(got, want, err_msg=dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(case: tuple[Any, ...]) -> None:
    text, *shapes = case
    xs = [array(s, seed=i) for i, s in enumerate(shapes)]
    w = array(np.einsum(text, *xs).shape, seed=7)

    def loss(*xs: Any) -> Any:
        return np.sum(np.einsum(text, *xs) * w)

    gradients = ons.grad(loss, argnums=tuple(range(len(xs))))(*xs)
    for i, x in enumerate(xs):
        direction = array(x.shape, seed=9)
        up, down = (loss(*(v + e * direction if i == j else v for j, v in enumerate(xs))) for e in (1e-5, -1e-5))
        np.testing.assert_allclose(np.sum(gradients[i] * direction), (up - down) / 2e-5, rtol=1e-6, atol=1e-8)


def test_interleaved_form() -> None:
    x, y, z = array((2, 3)), array((3, 4), seed=1), array((4, 5), seed=2)
    program = ons.stage(lambda x, y, z: np.einsum(x, [0, 1], y, [1, 2], z, [2, 3], [3, 0]), x, y, z)
    np.testing.assert_allclose(program(x, y, z), np.einsum("ij,jk,kl->li", x, y, z))
    implicit = ons.stage(lambda x, y: np.einsum(x, [1, ...], y, [1, ...]), x, x)
    np.testing.assert_allclose(implicit(x, x), np.einsum(x, [1, ...], x, [1, ...]))


def contracted(path: Any, *xs: Any) -> Any:
    return np.einsum("ij,jk,kl->il", *xs, optimize=path)


def test_greedy_and_given_paths() -> None:
    xs = [array(s) for s in ((40, 2), (2, 40), (40, 2))]
    sizes: list[int] = []
    for optimize in (True, "greedy", ["einsum_path", (0, 1), (0, 1)]):
        program = ons.stage(partial(contracted, optimize), *xs)
        np.testing.assert_allclose(program(*xs), np.einsum("ij,jk,kl->il", *xs))
        sizes.append(max(int(np.prod(e.outputs[0].spec.shape)) for e in program.program.equations))
    assert sizes == [80, 80, 1600]


def test_a_matrix_product_is_one_equation() -> None:
    for text, *shapes in (("ij,jk->ik", (3, 4), (4, 5)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5))):
        program = ons.stage(partial(np.einsum, text), *(array(s) for s in shapes))
        assert [e.primitive.name for e in program.program.equations] == ["matmul"]


def test_named_dims() -> None:
    specs = (ons.ArraySpec(("B", "T", 3), "float32"), ons.ArraySpec((3, 4), "float32"))
    program = ons.stage(lambda x, w: np.einsum("bti,ij->btj", x, w), specs=specs)
    assert repr(program.out_specs) == "f32[B,T,4]"
    diagonal = ons.stage(lambda x: np.einsum("bii->bi", x), specs=(ons.ArraySpec(("B", "T", "T"), "float32"),))
    w = array((3, 4), "float32")
    for b, t in ((0, 2), (1, 1), (2, 5), (3, 0)):
        x = array((b, t, 3), "float32")
        np.testing.assert_allclose(program(x, w), x @ w, rtol=1e-5, atol=1e-6)
        square = array((b, t, t), "float32")
        np.testing.assert_array_equal(diagonal(square), np.einsum("bii->bi", square))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("ij,jk->iz", (2, 3), (3, 4)), "names 'z', which no operand has"),
        (("ij,jk->iij", (2, 3), (3, 4)), "names 'i' twice"),
        (("ij->ij", (2, 3), (3, 4)), "has subscripts for 1 operands, got 2"),
        (("i,j", (2, 3), (3, 4)), r"operand 0 has shape \[2, 3\], its subscripts in 'i,j' name 1 axes"),
        (("ij.->i", (2, 3)), "no sequence of letters"),
        (("ij->i->j", (2, 3)), "more than one '->'"),
        (("ij,jk->ik", (2, 3), (4, 2)), "'ij,jk->ik': cannot broadcast dims 3 and 4"),
        (("...i->i", (2, 3)), "the output needs a '...' too"),
        (("ijk", (2, 3)), "name 3 axes"),
    ],
)
def test_bad_subscripts(args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ons.ShapeError, match=text):
        ons.stage(lambda *xs: np.einsum(args[0], *xs), *(np.ones(s) for s in args[1:]))


def test_mixed_dtypes_are_promoted_and_dtype_casts() -> None:
    x, y = array((2, 3), "int32"), array((3, 2), "float32")
    got = ons.stage(lambda x, y: np.einsum("ij,jk", x, y), x, y)(x, y)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, np.einsum("ij,jk", x, y))
    got = ons.stage(lambda y: np.einsum("ij->j", y, dtype="float64"), y)(y)
    assert got.dtype == np.float64
