"""matmul and its kin against NumPy, through ONNX Runtime and eagerly; gradients; shapes; messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onstage as ons

ALL_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
RTOL = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}


def array(shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Any:
    rng = np.random.default_rng([seed, len(shape), *shape])
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def assert_same(got: Any, want: Any, label: str = "") -> None:
    want = np.asarray(want)
    assert isinstance(got, np.ndarray)
    assert got.dtype == want.dtype, label
    assert got.shape == want.shape, label
    if want.dtype.kind == "f":
        tolerance = RTOL[want.dtype.name]
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(want).max(initial=0))), err_msg=label)
    else:
        np.testing.assert_array_equal(got, want, err_msg=label)


def assert_gradients(f: Any, *xs: Any) -> None:
    """The reverse-mode gradient of sum(f * w) along random directions against central differences, and staged against eager."""
    w = array(np.shape(f(*xs)), seed=1)

    def loss(*args: Any) -> Any:
        return np.sum(f(*args) * w)

    numbers = tuple(range(len(xs)))
    gradients = ons.grad(loss, argnums=numbers)(*xs)
    staged = ons.stage(ons.grad(loss, argnums=numbers), *xs)(*xs)
    for i, x in enumerate(xs):
        np.testing.assert_allclose(staged[i], gradients[i], rtol=1e-9, atol=1e-12)
        direction = array(x.shape, seed=2)
        up, down = (loss(*(v + e * direction if i == j else v for j, v in enumerate(xs))) for e in (1e-5, -1e-5))
        np.testing.assert_allclose(np.sum(gradients[i] * direction), (up - down) / 2e-5, rtol=1e-6, atol=1e-8)


SHAPES = [
    ((2, 3), (3, 4)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((3,), (3,)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((2, 1, 2, 3), (4, 3, 2)),
    ((4, 2, 3), (3,)),
    ((3,), (4, 3, 2)),
    ((2, 0), (0, 3)),
    ((0, 3), (3, 2)),
    ((2, 3), (3, 0)),
    ((0, 2, 3), (0, 3, 2)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul_is_numpys(shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    x, y = (array(s, dtype, i) for i, s in enumerate(shapes))
    assert_same(ons.stage(lambda x, y: x @ y, x, y)(x, y), x @ y)


@pytest.mark.parametrize("shapes", [s for s in SHAPES if 0 not in s[0] + s[1]], ids=str)
def test_matmul_gradients(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert_gradients(np.matmul, *(array(s, seed=i) for i, s in enumerate(shapes)))


@pytest.mark.parametrize("shape", [(3, 3), (3, 5)])
def test_dense_layer_weight_gradient(shape: tuple[int, int]) -> None:
    x, w = array((4, 3), "float32"), array(shape, "float32", 1)
    program = ons.stage(ons.grad(lambda w, x: np.sum((x @ w) ** 2)), w, x)
    np.testing.assert_allclose(program(w, x), x.T @ (2 * x @ w), rtol=1e-5, atol=1e-5)
    x, w = 2 * x, w - 1
    np.testing.assert_allclose(program(w, x), x.T @ (2 * x @ w), rtol=1e-5, atol=1e-5)


def test_weight_gradient_of_a_stack_is_one_product() -> None:
    x, w = ons.ArraySpec(("B", "T", 3), "float32"), ons.ArraySpec((3, 4), "float32")
    program = ons.stage(ons.grad(lambda w, x: np.sum(x @ w)), specs=(w, x))
    products = [repr(e.outputs[0].spec) for e in program.program.equations if e.primitive.name == "matmul"]
    assert products[-1] == "f32[3,4]"
    a = array((2, 5, 3), "float32")
    np.testing.assert_allclose(program(np.zeros((3, 4), np.float32), a), np.tile(a.sum((0, 1))[:, None], 4), rtol=1e-5)
    assert program(np.ones((3, 4), np.float32), np.zeros((0, 5, 3), np.float32)).tolist() == np.zeros((3, 4)).tolist()


def test_products_of_transposes_are_single_nodes() -> None:
    x, w = array((4, 3), "float32"), array((3, 5), "float32", 1)
    program = ons.stage(ons.grad(lambda x, w: np.sum((x @ w) ** 2), argnums=(0, 1)), x, w)
    kinds = [n.op_type for n in program.to_onnx().graph.node]
    assert kinds.count("Gemm") == 2 and kinds.count("MatMul") == 1 and "Transpose" not in kinds
    dx, dw = program(x, w)
    np.testing.assert_allclose(dx, 2 * (x @ w) @ w.T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, 2 * x.T @ (x @ w), rtol=1e-5, atol=1e-5)
    both = ons.stage(lambda x, w: x.T @ w.T, array((3, 2)), array((4, 3)))
    assert [n.op_type for n in both.to_onnx().graph.node] == ["Gemm"]
    integers = ons.stage(lambda x: x.T @ x, np.ones((2, 3), np.int32))
    assert integers(np.full((2, 3), 2, np.int32)).tolist() == [[8] * 3] * 3


def test_second_order() -> None:
    x = array((3, 3))
    hessian_row = ons.grad(lambda x: np.sum(ons.grad(lambda x: np.sum(x @ x @ x))(x)[0]))
    step = 1e-6
    numeric = np.zeros((3, 3))
    for index in np.ndindex(3, 3):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        numeric[index] = sum((ons.grad(lambda x: np.sum(x @ x @ x))(v)[0]).sum() * s for v, s in ((up, 1), (down, -1))) / (2 * step)
    np.testing.assert_allclose(hessian_row(x), numeric, rtol=1e-6, atol=1e-7)


def test_promotion_and_weak_operands() -> None:
    x, y = array((2, 3), "int32"), array((3, 2), "float32")
    assert_same(ons.stage(lambda x, y: x @ y, x, y)(x, y), x @ y)
    assert_same(ons.stage(lambda y: [[1, 2, 3]] @ y, y)(y), [[1, 2, 3]] @ y)


@pytest.mark.parametrize("f", [lambda x: x @ x, lambda x: x @ 2.0, lambda x: np.float32(3) @ x, lambda x: x @ np.ones(2, np.float32)])
def test_shapes_that_do_not_fit(f: Any) -> None:
    with pytest.raises(ons.ShapeError, match="matmul: "):
        ons.stage(f, np.ones((2, 3), np.float32))


def test_the_message_names_both_operands_and_the_line() -> None:
    with pytest.raises(
        ValueError, match=r"inner dimensions differ: x is f32\[8,16\], y is f32\[32,4\] \(x.shape\[-1\] = 16, y.shape\[-2\] = 32\)"
    ) as error:
        ons.stage(lambda x, w: x @ w, np.ones((8, 16), np.float32), np.ones((32, 4), np.float32))
    assert "test_matmul.py" in str(error.value)


def test_float64_product_next_to_a_scalar_is_exact() -> None:
    x, w = array((4, 5)), array((5, 3), seed=1)
    program = ons.stage(lambda x, w: (x @ w) * 0.3, x, w)
    np.testing.assert_allclose(program(x, w), (x @ w) * 0.3, rtol=1e-14)


def test_vmap_of_a_matrix_times_vectors_is_one_product() -> None:
    w, vs = array((4, 3)), array((5, 3), seed=1)
    np.testing.assert_allclose(ons.vmap(lambda v: w @ v)(vs), vs @ w.T, rtol=1e-12)
    np.testing.assert_allclose(ons.vmap(lambda m: w @ m)(array((5, 3, 2))), w @ array((5, 3, 2)), rtol=1e-12)
    np.testing.assert_allclose(
        ons.vmap(lambda m: m @ vs[0], in_axes=2)(array((4, 3, 6))), np.moveaxis(array((4, 3, 6)), 2, 0) @ vs[0], rtol=1e-12
    )


# ------------------------------------------------------------------------------------------------------------ products

PRODUCTS = [
    ("dot", (3,), (3,)),
    ("dot", (2, 3), (3,)),
    ("dot", (2, 3), (3, 4)),
    ("dot", (2, 5, 3), (4, 3, 6)),
    ("dot", (2, 5, 3), (3,)),
    ("dot", (), (2,)),
    ("vdot", (2, 3), (3, 2)),
    ("inner", (3,), (3,)),
    ("inner", (2, 3), (4, 3)),
    ("inner", (2, 5, 3), (4, 3)),
    ("inner", (), (3,)),
    ("outer", (2, 3), (4,)),
    ("kron", (2, 3), (4,)),
    ("kron", (2, 3), (4, 5)),
    ("tensordot", (2, 3, 4), (3, 4, 5)),
    ("linalg.vecdot", (2, 3), (3,)),
    ("linalg.matmul", (2, 3), (3, 2)),
    ("linalg.outer", (3,), (2,)),
    ("cross", (2, 3), (2, 3)),
    ("cross", (3,), (4, 3)),
    ("linalg.cross", (3,), (3,)),
]
if hasattr(np, "matvec"):
    PRODUCTS += [("matvec", (2, 4, 3), (3,)), ("vecmat", (5, 2), (5, 2, 3)), ("vecdot", (2, 3), (3,))]


def numpy_function(name: str) -> Any:
    return getattr(np.linalg, name.removeprefix("linalg.")) if name.startswith("linalg.") else getattr(np, name)


@pytest.mark.parametrize(("name", "x_shape", "y_shape"), PRODUCTS)
def test_products_are_numpys(name: str, x_shape: tuple[int, ...], y_shape: tuple[int, ...]) -> None:
    f = numpy_function(name)
    for dtype in ("float64", "float32", "float16", "int32", "int8", "uint64"):
        x, y = array(x_shape, dtype), array(y_shape, dtype, 1)
        assert_same(ons.stage(lambda x, y: f(x, y), x, y)(x, y), f(x, y), dtype)
    assert_gradients(f, array(x_shape), array(y_shape, seed=1))


@pytest.mark.parametrize("axes", [0, 1, ([1], [0]), ([0, 1], [1, 0]), (1, 0), ((-1,), (-2,))], ids=str)
def test_tensordot_axes(axes: Any) -> None:
    x, y = array((3, 4)), array((4, 3), seed=1)
    assert_same(ons.stage(lambda x, y: np.tensordot(x, y, axes=axes), x, y)(x, y), np.tensordot(x, y, axes=axes))


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: np.tensordot(x, x, axes=1), r"tensordot: the axes to sum over differ.*x.shape\[1\] = 3, y.shape\[0\] = 2"),
        (lambda x: np.tensordot(x, x, axes=3), "tensordot: 3 axes are summed over; x has 2 and y 2"),
        (lambda x: np.tensordot(x, x, axes=([0], [0, 1])), "1 axes of x are paired with 2 of y"),
        (lambda x: np.dot(np.ones((2, 2, 4)), x), "dot: the axes to sum over differ"),
        (lambda x: np.cross(x, x[:, :2]), "cross: vectors of 3 components are needed"),
        (lambda x: np.linalg.outer(x, x), "outer: two vectors are needed"),
        (lambda x: np.linalg.matrix_power(x, 2), "matrix_power: square matrices are needed"),
        (lambda x: np.linalg.multi_dot([x]), "multi_dot: two arrays at least"),
    ],
)
def test_messages(f: Any, text: str) -> None:
    with pytest.raises(ons.ShapeError, match=text):
        ons.stage(f, np.ones((2, 3)))


def test_multi_dot_takes_the_cheap_order() -> None:
    arrays = [array((50, 2)), array((2, 60), seed=1), array((60, 3), seed=2), array((3,), seed=3)]
    program = ons.stage(lambda *xs: np.linalg.multi_dot(xs), *arrays)
    assert_same(program(*arrays), np.linalg.multi_dot(arrays))
    assert max(np.prod(e.outputs[0].spec.shape) for e in program.program.equations) <= 60


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, -1, -2])
def test_matrix_power(n: int) -> None:
    x = array((2, 3, 3)) / 2
    assert_same(ons.stage(lambda x: np.linalg.matrix_power(x, n), x)(x), np.linalg.matrix_power(x, n))


def test_dot_is_a_method_and_outer_a_ufunc_method() -> None:
    x, y = array((2, 3)), array((3, 2), seed=1)
    assert_same(ons.stage(lambda x, y: x.dot(y), x, y)(x, y), x.dot(y))
    assert_same(ons.stage(lambda x, y: np.multiply.outer(x, y), x, y)(x, y), np.multiply.outer(x, y))
