"""Linear algebra against NumPy on the interpreter and on ONNX Runtime, its gradients against central differences, and its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import onstage as ons

Agree = Callable[..., Any]
rng = np.random.default_rng(7)
SQUARE = rng.normal(size=(2, 4, 4))
TALL = rng.normal(size=(2, 5, 3))
POSITIVE = SQUARE @ SQUARE.mT + 2 * np.eye(4)
SYMMETRIC = SQUARE + SQUARE.mT
LOW_RANK = rng.normal(size=(5, 2)) @ rng.normal(size=(2, 4))


def numeric(f: Callable[[Any], Any], x: Any, direction: Any, step: float = 1e-6) -> float:
    return float((f(x + step * direction) - f(x - step * direction)) / (2 * step))


def assert_gradient(f: Callable[[Any], Any], x: Any, tolerance: float = 1e-6) -> None:
    """First and second derivatives along a direction, by both modes and staged, against central differences."""
    direction = np.cos(np.arange(x.size)).reshape(x.shape)
    gradient = ons.grad(f)
    along = np.sum(gradient(x) * direction)
    assert along == pytest.approx(numeric(f, x, direction), rel=tolerance, abs=tolerance)
    assert ons.jvp(f, (x,), (direction,))[1] == pytest.approx(along, rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(ons.stage(gradient, x)(x), gradient(x), rtol=1e-9, atol=1e-9)
    second = np.sum(ons.hvp(f, (x,), (direction,)) * direction)
    slope = numeric(lambda x: np.sum(gradient(x) * direction), x, direction)
    assert second == pytest.approx(slope, rel=10 * tolerance, abs=10 * tolerance)


# ------------------------------------------------------------------------------------------------------------ systems, determinants


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((2, 3, 3), (3,)),
        ((2, 3, 3), (3, 1)),
        ((3, 3), (2, 3, 2)),
        ((2, 1, 3, 3), (4, 3, 2)),
        ((1, 1), (1,)),
    ],
)
def test_solve_broadcasts_as_numpy_does(agree: Agree, shapes: Any, dtype: str) -> None:
    a, b = (np.random.default_rng(3).normal(size=s).astype(dtype) for s in shapes)
    agree(lambda a, b: np.linalg.solve(a, b), a, b, rtol=1e-4 if dtype == "float32" else 1e-11)


def test_integers_are_solved_in_float64(agree: Agree) -> None:
    a = np.array([[2, 1], [7, 4]])
    agree(lambda a: np.linalg.inv(a), a)
    agree(lambda a: np.linalg.det(a), a)
    agree(lambda a, b: np.linalg.solve(a, b), a, np.array([1, 2], np.float32))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 30])
def test_inverse_and_determinant(agree: Agree, n: int) -> None:
    a = np.random.default_rng(n).normal(size=(n, n))
    agree(lambda a: np.linalg.inv(a), a, rtol=1e-9)
    agree(lambda a: np.linalg.det(a), a, rtol=1e-10)
    agree(lambda a: tuple(np.linalg.slogdet(a)), a, rtol=1e-10)


def test_sizes_may_be_named(agree: Agree) -> None:
    agree(lambda a, b: np.linalg.solve(a, b), SQUARE, SQUARE[..., :2], shapes=[("B", "n", "n"), ("B", "n", 2)], rtol=1e-10)
    agree(lambda a: np.linalg.det(a), SQUARE, shapes=[("B", "n", "n")])
    agree(lambda a: np.linalg.cholesky(a), POSITIVE, shapes=[("B", "n", "n")])
    agree(lambda a: np.linalg.eigvalsh(a), SYMMETRIC, shapes=[("B", 4, 4)])


def test_solve_is_backward_stable() -> None:
    """The residual is small even where the solution is not accurate: pivots are chosen."""
    a = np.vander(np.linspace(0, 1, 12)) + np.diag([1e-14] + [0.0] * 11)
    b = np.ones(12)
    x = ons.stage(lambda a, b: np.linalg.solve(a, b), a, b)(a, b)
    assert np.abs(a @ x - b).max() <= 1e-14 * np.abs(a).max() * np.abs(x).max() * 12


def test_slogdet_has_names_and_singular_matrices_have_a_determinant(agree: Agree) -> None:
    singular = np.array([[0.0, 1.0, 2.0, 0.0], [0.0, 2.0, 4.0, 1.0], [1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 3.0, 1.0]])
    result = ons.stage(lambda a: np.linalg.slogdet(a), singular)(singular)
    assert (result.sign, result.logabsdet) == (0.0, -np.inf)
    assert ons.stage(lambda a: np.linalg.det(a), singular)(singular) == 0.0


def test_singular_systems_raise_on_arrays_and_are_not_finite_in_a_file() -> None:
    singular = np.array([[1.0, 2.0], [2.0, 4.0]])
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        ons.numpy.linalg.solve(singular, np.ones(2))
    assert not np.isfinite(ons.stage(lambda a: np.linalg.inv(a), singular)(singular)).any()


def test_the_gradient_of_a_small_determinant_holds_at_singular_matrices() -> None:
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    assert_gradient(lambda a: np.linalg.det(a), a)


def test_solve_triangular(agree: Agree) -> None:
    def solved(a: Any, b: Any) -> Any:
        f = ons.numpy.linalg.solve_triangular
        return f(a, b), f(a, b, lower=True), f(a, b, trans=True)

    a, b = SQUARE[0], rng.normal(size=(3, 4, 2))
    f = np.linalg.solve
    unit = np.triu(a, 1) + np.eye(4)
    agree(solved, a, b, wanted=(f(np.triu(a), b), f(np.tril(a), b), f(np.triu(a).T, b)), rtol=1e-9)
    vector = b[0, :, 0]
    agree(lambda a, v: ons.numpy.linalg.solve_triangular(a, v, unit_diagonal=True), a, vector, wanted=f(unit, vector))


def test_tensor_equations(agree: Agree) -> None:
    a = rng.normal(size=(2, 3, 6))
    agree(lambda a: np.linalg.tensorinv(a, ind=2), a, rtol=1e-10)
    agree(lambda a, b: np.linalg.tensorsolve(a, b), a, rng.normal(size=(2, 3)), rtol=1e-10)


@pytest.mark.parametrize("name", ["solve", "inv", "det", "slogdet"])
def test_gradients_of_systems(name: str) -> None:
    functions: dict[str, Callable[[Any], Any]] = {
        "solve": lambda a: np.sum(np.sin(np.linalg.solve(a, np.cos(a[..., :2])))),
        "inv": lambda a: np.sum(np.linalg.inv(a) ** 2),
        "det": lambda a: np.sum(np.linalg.det(a) ** 2),
        "slogdet": lambda a: np.sum(np.linalg.slogdet(a)[1] ** 2),
    }
    assert_gradient(functions[name], SQUARE[1] + 3 * np.eye(4))


def test_vmap_of_solve_shares_a_common_matrix() -> None:
    a, bs = SQUARE[0], rng.normal(size=(6, 4))
    program = ons.stage(lambda a, bs: ons.vmap(np.linalg.solve, (None, 0))(a, bs), a, bs)
    np.testing.assert_allclose(program(a, bs), np.linalg.solve(a, bs.T).T, rtol=1e-10)
    solve = next(e for e in program.program.equations if e.primitive.name == "solve")
    assert solve.inputs[0].spec.shape == (4, 4)


# ---------------------------------------------------------------------------------------------------------------- decompositions


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_reads_one_triangle(agree: Agree, upper: bool) -> None:
    other = POSITIVE + 100 * (np.tril(np.ones((4, 4)), -1) if upper else np.triu(np.ones((4, 4)), 1))
    agree(lambda a: np.linalg.cholesky(a, upper=upper), other)
    weights = np.cos(np.arange(16)).reshape(4, 4)
    assert_gradient(lambda a: np.sum(np.linalg.cholesky(a, upper=upper) * weights), POSITIVE[0])


def test_cholesky_of_an_indefinite_matrix() -> None:
    indefinite = np.diag([1.0, -1.0])
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        ons.numpy.linalg.cholesky(indefinite)
    assert np.isnan(ons.stage(lambda a: np.linalg.cholesky(a), indefinite)(indefinite)[1, 1])


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 4), (3, 5), (1, 1), (3, 0)])
def test_qr_has_lapacks_signs(agree: Agree, shape: tuple[int, ...], mode: Any) -> None:
    a = np.random.default_rng(5).normal(size=shape)
    agree(lambda a: tuple(np.linalg.qr(a, mode)) if mode != "r" else np.linalg.qr(a, mode), a)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_gradient_of_qr(shape: tuple[int, int]) -> None:
    def f(a: Any) -> Any:
        q, r = np.linalg.qr(a)
        return np.sum(q * np.cos(np.arange(q.size)).reshape(q.shape)) + np.sum(np.sin(r))

    assert_gradient(f, np.random.default_rng(11).normal(size=shape))


def test_complete_q_has_no_derivative_and_r_has() -> None:
    with pytest.raises(ons.MissingRuleError, match=r"qr: with mode='complete' .* use mode='reduced'"):
        ons.grad(lambda a: np.sum(np.linalg.qr(a, "complete")[0]))(TALL[0])
    assert_gradient(lambda a: np.sum(np.sin(np.linalg.qr(a, "complete")[1])), TALL[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 12])
def test_eigh(n: int, dtype: str) -> None:
    a = np.random.default_rng(n).normal(size=(2, n, n)).astype(dtype)
    a = a + a.mT
    tolerance = 1e-13 if dtype == "float64" else 2e-5
    values, vectors = ons.stage(lambda a: np.linalg.eigh(a), a)(a)
    assert values.dtype == vectors.dtype == np.dtype(dtype)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a), atol=10 * tolerance)
    np.testing.assert_allclose(a @ vectors, vectors * values[..., None, :], atol=20 * tolerance)
    np.testing.assert_allclose(vectors.mT @ vectors, np.broadcast_to(np.eye(n), a.shape), atol=10 * tolerance)
    np.testing.assert_allclose(vectors, ons.numpy.linalg.eigh(a)[1], atol=100 * tolerance)


def test_eigh_of_equal_eigenvalues_and_of_the_upper_triangle(agree: Agree) -> None:
    a = np.array([[2.0, 5.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
    agree(lambda a: np.linalg.eigvalsh(a), a)
    agree(lambda a: np.linalg.eigvalsh(a, "U"), a)
    gradient = ons.grad(lambda a: np.sum(np.linalg.eigh(a)[1] @ np.diag([1.0, 1.0, 1.0]) @ np.linalg.eigh(a)[1].T))(np.eye(3))
    np.testing.assert_array_equal(gradient, np.zeros((3, 3)))


def test_gradient_of_eigh() -> None:
    def f(a: Any) -> Any:
        values, vectors = np.linalg.eigh(a)
        return np.sum(np.sin(values)) + np.sum(vectors**2 * np.cos(np.arange(16)).reshape(4, 4))

    assert_gradient(f, SYMMETRIC[0], 1e-5)


MATRICES = {
    "tall": TALL,
    "wide": TALL.mT.copy(),
    "square": SQUARE,
    "low rank": LOW_RANK,
    "zero": np.zeros((4, 3)),
    "ones": np.ones((5, 5)),
    "graded": np.diag([1e-8, 1.0, 1e8]) @ SQUARE[0, :3, :3],
    "ill-conditioned": np.vander(np.linspace(0, 1, 10)),
    "one": np.ones((1, 1)),
    "empty": np.zeros((3, 0)),
}


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", list(MATRICES))
def test_svd(name: str, full: bool) -> None:
    a = MATRICES[name]
    u, s, vh = ons.stage(lambda a: np.linalg.svd(a, full_matrices=full), a)(a)
    expected = np.linalg.svd(a, full_matrices=full)
    assert (u.shape, s.shape, vh.shape) == (expected[0].shape, expected[1].shape, expected[2].shape)
    k = s.shape[-1]
    scale = max(1e-300, float(np.abs(a).max(initial=0)))
    np.testing.assert_allclose(s / scale, expected[1] / scale, atol=1e-14 * 10)
    np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :] / scale, a / scale, atol=1e-14 * 10)
    for q in (u, vh.mT):
        np.testing.assert_allclose(q.mT @ q, np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])), atol=1e-13)


def test_singular_vectors_have_the_signs_of_those_of_arrays() -> None:
    u, _, vh = ons.stage(lambda a: np.linalg.svd(a, full_matrices=False), TALL)(TALL)
    expected = ons.numpy.linalg.svd(TALL, full_matrices=False)
    np.testing.assert_allclose(u, expected.U, atol=1e-13)
    np.testing.assert_allclose(vh, expected.Vh, atol=1e-13)


@pytest.mark.parametrize("name", ["tall", "wide", "square"])
def test_gradient_of_svd(name: str) -> None:
    def f(a: Any) -> Any:
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return np.sum(u**2 * np.cos(np.arange(u.size)).reshape(u.shape)) + np.sum(np.sin(s)) + np.sum(vh**2 * np.arange(vh.shape[1]))

    assert_gradient(f, MATRICES[name][0], 1e-5)


# ------------------------------------------------------------------------------------------- ranks, least squares and norms


def test_pinv_lstsq_and_rank(agree: Agree) -> None:
    for a in (TALL, TALL.mT.copy(), SQUARE):
        agree(lambda a: np.linalg.pinv(a), a, rtol=1e-10)
    agree(lambda a: np.linalg.pinv(a, 1e-10), LOW_RANK)
    agree(lambda a: np.linalg.pinv(a, hermitian=True), SYMMETRIC, rtol=1e-10)
    agree(lambda a: np.linalg.pinv(a, rtol=None), SQUARE, rtol=1e-10)
    for a in (TALL, LOW_RANK, np.zeros((3, 2)), np.zeros(3), np.ones(2)):
        agree(lambda a: np.linalg.matrix_rank(a), a)
    agree(lambda a: np.linalg.matrix_rank(a, tol=np.array([0.5, 2.0])), TALL)
    agree(lambda a, b: np.linalg.lstsq(a, b), TALL[0], TALL[1])
    agree(lambda a, b: np.linalg.lstsq(a, b), TALL[0].astype("float32"), TALL[1, :, 0].astype("float32"), rtol=1e-5)
    agree(lambda a, b: np.linalg.lstsq(a, b), TALL[0].T.copy(), TALL[1, :3, 0])


def test_gradients_of_pinv_and_lstsq() -> None:
    weights = np.cos(np.arange(15)).reshape(3, 5)
    assert_gradient(lambda a: np.sum(np.linalg.pinv(a) * weights), TALL[0])
    assert_gradient(lambda a: np.sum(np.linalg.pinv(a) * weights.T), TALL[0].T.copy())
    assert_gradient(lambda b: np.sum(np.sin(np.linalg.lstsq(TALL[0], b)[0])), TALL[1])
    assert_gradient(lambda a: np.sum(np.sin(np.linalg.lstsq(a, TALL[1])[0])), TALL[0])


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"])
def test_condition_number(agree: Agree, p: Any) -> None:
    agree(lambda a: np.linalg.cond(a, p), SQUARE, rtol=1e-9)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("ord", [None, 0, 1, -1, 2, -2, 3, 0.5, np.inf, -np.inf])
def test_vector_norms(agree: Agree, ord: Any, keepdims: bool) -> None:
    agree(lambda x: np.linalg.norm(x, ord, axis=1, keepdims=keepdims), TALL)
    agree(lambda x: np.linalg.norm(x, ord, axis=0), np.arange(-3, 3))
    if ord is not None:
        agree(lambda x: np.linalg.vector_norm(x, axis=(0, 2), keepdims=keepdims, ord=ord), TALL)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_matrix_norms(agree: Agree, ord: Any, keepdims: bool) -> None:
    agree(lambda x: np.linalg.norm(x, ord, axis=(2, 0), keepdims=keepdims), TALL)
    agree(lambda x: np.linalg.matrix_norm(x, ord=ord, keepdims=keepdims), TALL.astype("float32"), rtol=1e-5)
    agree(lambda x: np.linalg.norm(x, ord), LOW_RANK, rtol=1e-9 if ord == -2 else None)


def test_the_norm_has_slope_zero_at_zero() -> None:
    for f in (lambda x: np.linalg.norm(x), lambda x: np.linalg.norm(x, 3, axis=0), lambda x: np.linalg.vector_norm(x)):
        np.testing.assert_array_equal(ons.grad(f)(np.zeros(3)), np.zeros(3))
        np.testing.assert_array_equal(ons.stage(ons.grad(f), np.zeros(3))(np.zeros(3)), np.zeros(3))
    assert_gradient(lambda x: np.linalg.norm(x), np.array([3.0, 4.0]))
    assert_gradient(lambda x: np.linalg.norm(x, 3), np.array([3.0, -4.0]))
    assert_gradient(lambda x: np.linalg.norm(x, "nuc"), TALL[0], 1e-5)


# ------------------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: np.linalg.inv(x), np.linalg.LinAlgError, "inv: the last two axes must be square, got f64"),
        (lambda x: np.linalg.det(x[0]), np.linalg.LinAlgError, "det: an array of at least two axes is needed"),
        (lambda x: np.linalg.solve(x[:, :3], x[:2]), ons.ShapeError, "solve: the right-hand side does not fit"),
        (lambda x: np.linalg.inv(x.astype(np.float16)[:, :3]), ons.DTypeError, "inv: not supported for f16; cast to float32 or float64"),
        (lambda x: np.linalg.eig(x), ons.UnsupportedError, "np.linalg.eig gives complex or real results"),
        (lambda x: np.linalg.eigvals(x), ons.UnsupportedError, "np.linalg.eigvals gives complex or real results"),
        (lambda x: np.linalg.qr(x, "raw"), ons.UnsupportedError, "qr: mode='raw' is LAPACK's own storage"),
        (lambda x: np.linalg.qr(x, "other"), ValueError, "Unrecognized mode 'other'"),
        (lambda x: np.linalg.norm(x, 7), ValueError, "Invalid norm order 7 for matrices"),
        (lambda x: np.linalg.norm(x[0], "fro"), ValueError, "Invalid norm order 'fro' for vectors"),
        (lambda x: np.linalg.norm(x, axis=(0, 0)), ValueError, "Duplicate axes given"),
        (lambda x: np.linalg.pinv(x, x[0, 0]), ons.UnsupportedError, "pinv: the tolerance must be a number that is known"),
        (lambda x: np.linalg.lstsq(x, x[1:]), np.linalg.LinAlgError, "lstsq: the numbers of rows differ"),
        (lambda x: np.linalg.eigh(x[:, :3], "X"), ValueError, "UPLO argument must be 'L' or 'U'"),
    ],
)
def test_errors(function: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ons.stage(function, np.ones((3, 4)))


def test_rotations_need_known_sizes() -> None:
    with pytest.raises(ons.UnsupportedError, match=r"svd: the sizes of the matrices must be known, got f64\[n,3\]"):
        ons.stage(lambda a: np.linalg.svdvals(a), specs=(ons.ArraySpec(("n", 3), "float64"),))


def test_a_saved_file_solves(tmp_path: Any) -> None:
    a, b = SQUARE[0], rng.normal(size=4)
    program = ons.stage(ons.grad(lambda a, b: np.sum(np.linalg.solve(a, b) ** 2), argnums=(0, 1)), a, b)
    program.save(tmp_path / "solve.onnx")
    loaded = ons.load(tmp_path / "solve.onnx")
    for got, want in zip(loaded(a, b), program(a, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)
