"""add, subtract, multiply, divide, negative, select: the linear basis among the elementwise primitives, and what NumPy calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..stage.dtypes import BOOL, FLOAT64, kind_rank, to_floating
from ..stage.errors import ConcretizationError
from ..stage.primitive import Case, Primitive, Sample
from ..stage.trace import bind
from .comparison import logical_and, logical_or
from .families import FLOATS, NUMBERS, binary_cases, elementwise, unary_cases
from .operands import cast, dtype_of, operand, promoted
from .registry import implements
from .structure import broadcast, sum_to


def _sides(ct: Any, primals: Any, active: Any, left: Any, right: Any) -> tuple[Any, Any]:
    x, y = primals
    return (
        sum_to(left(), x.shape) if active[0] else None,
        sum_to(right(), y.shape) if active[1] else None,
    )


def _add_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    a, b = tangents
    return b if a is None else a if b is None else bind(add_p, a, b)


def _is_constant(ctx: Any, atom: Any, value: float) -> bool:
    array = ctx.constant(atom)
    return array is not None and array.size == 1 and array.dtype.kind != "b" and float(array.reshape(())) == value


def _neutral(ctx: Any, x: Any, y: Any) -> Any:
    """x, if it has the shape and weakness that an operation on x and a constant would have."""
    sx, sy = ctx.spec(x), ctx.spec(y)
    return x if len(sy.shape) <= len(sx.shape) and all(d == 1 for d in sy.shape) and (not sx.weak or sy.weak) else None


def _multiply_simplify(ctx: Any, x: Any, y: Any) -> Any:
    if _is_constant(ctx, y, 1.0):
        return _neutral(ctx, x, y)
    if _is_constant(ctx, x, 1.0):
        return _neutral(ctx, y, x)
    return None


def _divide_simplify(ctx: Any, x: Any, y: Any) -> Any:
    return _neutral(ctx, x, y) if _is_constant(ctx, y, 1.0) else None


def _negative_simplify(ctx: Any, x: Any) -> Any:
    inner = ctx.producer(x)
    return inner.inputs[0] if inner is not None and inner.primitive is negative_p else None


def _add_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    return _sides(ct, primals, active, lambda: ct, lambda: ct)


add_p = elementwise(
    "add",
    np.add,
    exact=True,
    dtypes=NUMBERS,
    jvp=_add_jvp,
    linear=((0, 1),),
    transpose=_add_transpose,
    onnx="Add",
    cases=[*binary_cases(), *binary_cases((-9, 9), (-9, 9), "int")],
)


def _subtract_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    a, b = tangents
    return bind(negative_p, b) if a is None else a if b is None else bind(subtract_p, a, b)


def _subtract_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    return _sides(ct, primals, active, lambda: ct, lambda: bind(negative_p, ct))


subtract_p = elementwise(
    "subtract",
    np.subtract,
    exact=True,
    dtypes=NUMBERS,
    jvp=_subtract_jvp,
    linear=((0, 1),),
    transpose=_subtract_transpose,
    onnx="Sub",
    cases=[*binary_cases(), *binary_cases((-9, 9), (-9, 9), "int")],
)


def _multiply_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    return _sides(ct, primals, active, lambda: bind(multiply_p, ct, primals[1]), lambda: bind(multiply_p, ct, primals[0]))


multiply_p = elementwise(
    "multiply",
    np.multiply,
    exact=True,
    dtypes=NUMBERS,
    linear=((0,), (1,)),
    transpose=_multiply_transpose,
    onnx="Mul",
    simplify=_multiply_simplify,
    cases=[*binary_cases(), *binary_cases((-9, 9), (-9, 9), "int")],
)


def _divide_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    a, b = tangents
    y = primals[1]
    first = None if a is None else bind(divide_p, a, y)
    if b is None:
        return first
    second = bind(negative_p, bind(divide_p, bind(multiply_p, b, output), y))
    return second if first is None else bind(add_p, first, second)


def _divide_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    x, y = primals
    quotient = bind(divide_p, ct, y)
    return (
        sum_to(quotient, x.shape) if active[0] else None,
        sum_to(bind(negative_p, bind(multiply_p, quotient, output)), y.shape) if active[1] else None,
    )


divide_p = elementwise(
    "divide",
    np.divide,
    exact=True,
    dtypes=FLOATS,
    jvp=_divide_jvp,
    linear=((0,),),
    transpose=_divide_transpose,
    onnx="Div",
    simplify=_divide_simplify,
    cases=binary_cases((-2, 2), (0.5, 3)),
)


def _negative_onnx(b: Any, x: str) -> str:
    # ONNX has no Neg for unsigned integers: 0 - x wraps as NumPy's does.
    return b.op("Sub", b.const(0, b.dtype(x)), x) if b.dtype(x).kind == "u" else b.op("Neg", x)


def _negative_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    return (bind(negative_p, ct),)


negative_p = elementwise(
    "negative",
    np.negative,
    exact=True,
    dtypes=NUMBERS,
    linear=((0,),),
    transpose=_negative_transpose,
    onnx=_negative_onnx,
    simplify=_negative_simplify,
    cases=[*unary_cases(), *unary_cases((-9, 9), "int")],
)


def _select_transpose(ct: Any, primals: Any, output: Any, *, active: Any) -> Any:
    condition, x, y = primals
    zero = np.zeros((), ct.dtype)
    return (
        None,
        sum_to(bind(where_p, condition, ct, zero), x.shape) if active[1] else None,
        sum_to(bind(where_p, condition, zero, ct), y.shape) if active[2] else None,
    )


def _where_jvp(output: Any, primals: Any, tangents: Any) -> Any:
    condition = primals[0]
    _, a, b = tangents
    if a is None and b is None:
        return None
    zero = np.zeros((), output.dtype)
    return bind(where_p, condition, zero if a is None else a, zero if b is None else b)


where_p = elementwise(
    "where",
    np.where,
    exact=True,
    mixed=True,
    jvp=_where_jvp,
    linear=((1, 2),),
    transpose=_select_transpose,
    onnx="Where",
    cases=[
        Case((Sample((2, 3), "bool"), Sample((2, 3)), Sample((2, 3)))),
        Case((Sample((3,), "bool"), Sample((2, 1)), Sample(()))),
        Case((Sample((2,), "bool"), Sample((2,), "any"), Sample((2,), "any")), smooth=False),
        Case((Sample((2, 3), "bool"), Sample((2, 3)), Sample((2, 3))), named=(("B", 3), ("B", 3), ("B", 3))),
    ],
)


@implements(np.add, operator="add")
def add(x: Any, y: Any) -> Any:
    """x + y; booleans are or-ed, as NumPy does."""
    return _arithmetic(add_p, x, y, logical_or)


def _arithmetic(primitive: Primitive, x: Any, y: Any, boolean: Callable[..., Any]) -> Any:
    a, b = promoted(operand(x), operand(y))
    if dtype_of(a)[0] == BOOL:
        return boolean(a, b)
    return bind(primitive, a, b)


@implements(np.subtract, operator="subtract")
def subtract(x: Any, y: Any) -> Any:
    """x - y; booleans raise TypeError, as NumPy does."""
    a, b = promoted(operand(x), operand(y))
    if dtype_of(a)[0] == BOOL:
        raise TypeError(
            "numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the `^` operator, or logical_xor instead"
        )
    return bind(subtract_p, a, b)


@implements(np.multiply, operator="multiply")
def multiply(x: Any, y: Any) -> Any:
    """x * y; booleans are and-ed, as NumPy does."""
    return _arithmetic(multiply_p, x, y, logical_and)


@implements(np.true_divide, operator="true_divide")
def true_divide(x: Any, y: Any) -> Any:
    """x / y in floating point: integers and booleans divide as float64, as NumPy does."""
    a, b = promoted(operand(x), operand(y))
    dtype, weak = dtype_of(a)
    if kind_rank(dtype) < 2:
        a, b = cast(a, FLOAT64, weak=weak), cast(b, FLOAT64, weak=weak)
    return bind(divide_p, a, b)


@implements(np.negative, operator="negative")
def negative(x: Any) -> Any:
    """-x; booleans raise TypeError, as NumPy does."""
    x = operand(x)
    if dtype_of(x)[0] == BOOL:
        raise TypeError(
            "The numpy boolean negative, the `-` operator, is not supported, use the `~` operator or the logical_not function instead."
        )
    return bind(negative_p, x)


@implements(np.where)
def where(condition: Any, *values: Any) -> Any:
    """`where(condition, x, y)`: x where the condition holds, else y; x and y are promoted, the condition is taken as a boolean.

    With the condition alone it is `nonzero`, whose result has no size that is known while tracing: ConcretizationError.
    """
    if not values:
        raise ConcretizationError(
            "np.where(condition) with one argument: how many elements hold is known only when the program runs; "
            "use np.where(condition, x, y), or ons.numpy.nonzero(condition, size=n)"
        )
    if len(values) != 2:
        raise ValueError("either both or neither of x and y should be given")
    x, y = values
    condition = cast(operand(condition), BOOL)
    a, b = promoted(operand(x), operand(y), strong=True)
    return bind(where_p, condition, a, b)


def floating(x: Any) -> Any:
    """The operand in the float dtype in which NumPy's unary float functions compute it; never weak."""
    x = operand(x)
    return cast(x, to_floating(dtype_of(x)[0]))


def stretched(x: Any, like: Any) -> Any:
    """x broadcast to the shape of `like`."""
    return broadcast(x, like.shape)
