"""einsum with all of NumPy's syntax, as transposes, matrix products and sums; the order of contraction is fixed while staging."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..stage.dims import broadcast_dim
from ..stage.dtypes import FLOAT32, as_dtype, is_float
from ..stage.errors import MutationError, ShapeError
from ..stage.narrowing import is_sequence
from ..stage.spec import DimLike
from ..stage.trace import bind
from ..stage.tracer import Tracer, mark_view
from .contraction import (
    Label,
    Labels,
    Term,
    contract,
    greedy_pair,
    label_sizes,
    ordered,
    summed,
    without_stretched,
)
from .operands import cast, dtype_of, operand, promoted, shape_of
from .registry import implements
from .slicing import pad, slice_axis
from .structure import broadcast, reshape_p, transpose_p


class _Subscripts(NamedTuple):
    """Labels of each operand's axes and of the output's; Ellipsis stands for the axes that are not named."""

    inputs: list[list[Any]]
    output: list[Any] | None
    text: str


def _parse_text(text: str) -> _Subscripts:
    compact = text.replace(" ", "")
    left, arrow, right = compact.partition("->")
    if "->" in right or (not arrow and (">" in left or "-" in left)):
        raise ShapeError(f"einsum: {text!r} has more than one '->', or a '-' or '>' alone")
    return _Subscripts([_labels(part, text) for part in left.split(",")], _labels(right, text) if arrow else None, text)


def _labels(part: str, text: str) -> list[Any]:
    before, dots, after = part.partition("...")
    letters = before + after
    if not all(c.isascii() and c.isalpha() for c in letters):
        raise ShapeError(f"einsum: {part!r} in {text!r} is no sequence of letters and at most one '...'")
    return [*before, *([...] if dots else []), *after]


def _parse_lists(args: Sequence[Any]) -> tuple[_Subscripts, list[Any]]:
    """The interleaved form: operand, labels, operand, labels, ..., [output labels]."""
    operands = list(args[: len(args) - len(args) % 2 : 2])
    lists = [_label_list(x) for x in args[1::2]]
    output = _label_list(args[-1]) if len(args) % 2 else None
    return _Subscripts(lists, output, ", ".join(str(x) for x in lists)), operands


def _label_list(given: Any) -> list[Any]:
    labels: Any = given
    if not isinstance(given, list | tuple | range):
        raise ShapeError(f"einsum: labels are a list of integers and at most one Ellipsis, got {type(labels).__name__}")
    return [x if x is ... else operator.index(x) for x in labels]


def _expanded(subscripts: _Subscripts, operands: Sequence[Any]) -> tuple[list[Labels], Labels]:
    """Every axis labelled: the axes under an Ellipsis by their place from the right."""
    if len(subscripts.inputs) != len(operands):
        raise ShapeError(f"einsum: {subscripts.text!r} has subscripts for {len(subscripts.inputs)} operands, got {len(operands)}")
    inputs: list[Labels] = []
    widest = 0
    for i, (labels, value) in enumerate(zip(subscripts.inputs, operands, strict=True)):
        named = sum(label is not ... for label in labels)
        hidden = len(shape_of(value)) - named
        if hidden < 0 or (hidden > 0 and ... not in labels):
            raise ShapeError(
                f"einsum: operand {i} has shape {list(shape_of(value))}, its subscripts in {subscripts.text!r} name {named} axes"
            )
        widest = max(widest, hidden)
        inputs.append(_spell_out(labels, hidden))
    output: list[Any] | None = subscripts.output
    if output is None:
        counts = Counter(label for labels in inputs for label in labels)
        single: list[Any] = [label for label, count in counts.items() if count == 1 and not isinstance(label, tuple)]
        output = [..., *sorted(single)]
    elif widest and ... not in output:
        raise ShapeError(f"einsum: the operands of {subscripts.text!r} have axes under '...', so the output needs a '...' too")
    result = _spell_out(output, widest)
    known = {label for labels in inputs for label in labels}
    for label, count in Counter(result).items():
        if count > 1:
            raise ShapeError(f"einsum: the output of {subscripts.text!r} names {label!r} twice")
        if label not in known:
            raise ShapeError(f"einsum: the output of {subscripts.text!r} names {label!r}, which no operand has")
    return inputs, result


def _spell_out(labels: Sequence[Any], hidden: int) -> Labels:
    result: list[Label] = []
    for label in labels:
        result += [("...", i) for i in range(hidden, 0, -1)] if label is ... else [label]
    return tuple(result)


def _diagonal(value: Any, labels: Labels) -> Term:
    """The term with each label once: the diagonal of the axes that share one."""
    while len(set(labels)) < len(labels):
        label = next(x for x, count in Counter(labels).items() if count > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        others = [i for i in range(len(labels)) if i not in (first, second)]
        shape = shape_of(value)
        size = broadcast_dim(shape[first], shape[second])
        full = tuple(size if i in (first, second) else d for i, d in enumerate(shape))
        value = bind(transpose_p, broadcast(value, full), permutation=(*others, first, second))
        value = _last_diagonal(value, size)
        labels = (*(labels[i] for i in others), label)
    return Term(value, labels)


def _last_diagonal(x: Any, n: DimLike) -> Any:
    """x[..., i, i]: behind n more elements, rows of n + 1 begin on the diagonal."""
    lead = shape_of(x)[:-2]
    flat = bind(reshape_p, x, shape=(*lead, n * n))
    longer = pad(flat, (0,) * len(lead) + (0,), (0,) * len(lead) + (n,))
    rows = bind(reshape_p, longer, shape=(*lead, n, n + 1))
    return bind(reshape_p, slice_axis(rows, len(lead) + 1, 0, 1), shape=(*lead, n))


def _path(optimize: Any, count: int) -> list[tuple[int, ...]] | None:
    """The explicit path in `optimize`, None where one is to be chosen."""
    steps: list[Any] = list(optimize) if is_sequence(optimize) else []
    if steps and steps[0] == "einsum_path":
        path = [tuple(operator.index(i) for i in step) for step in steps[1:]]
        for step in path:
            if not step or len(set(step)) < len(step) or not all(0 <= i < count for i in step):
                raise ShapeError(f"einsum: step {step} of the path does not name some of {count} operands")
            count -= len(step) - 1
        return path
    if optimize is False or optimize is True or optimize in ("greedy", "optimal") or isinstance(optimize, tuple):
        return None
    raise ShapeError(f"einsum: optimize is True, False, 'greedy', 'optimal' or a path, got {optimize!r}")


def _contract_step(terms: list[Term], chosen: Sequence[int], output: Labels) -> list[Term]:
    """The chosen terms replaced by their product, which goes last."""
    rest = [term for i, term in enumerate(terms) if i not in chosen]
    result = terms[chosen[0]]
    waiting = [terms[i] for i in chosen[1:]]
    while waiting:
        kept = set(output).union(*(term.labels for term in (*rest, *waiting[1:])))
        result = contract(result, waiting.pop(0), kept, output if not rest and not waiting else ())
    return [*rest, result]


def _contract_all(terms: list[Term], output: Labels, path: list[tuple[int, ...]] | None, sizes: dict[Label, DimLike]) -> Term:
    for step in path or ():
        terms = _contract_step(terms, step, output)
    while len(terms) > 1:
        pair = (0, 1) if len(terms) == 2 else greedy_pair([t.labels for t in terms], output, sizes)
        terms = _contract_step(terms, pair, output)
    return summed(terms[0], output)


def _spread_to(term: Term, output: Labels, sizes: dict[Label, DimLike]) -> Term:
    """The output labels that were left out as size 1 in every operand that has them, put back."""
    missing = tuple(label for label in output if label not in term.labels)
    if not missing:
        return term
    labels = (*missing, *term.labels)
    full = tuple(sizes[label] for label in labels)
    return Term(broadcast(term.value, full), labels)


@implements(np.einsum)
def einsum(*operands: Any, out: None = None, optimize: Any = True, dtype: Any = None, order: str = "K", casting: str = "safe") -> Any:
    """Einstein summation in NumPy's syntax: `einsum("...ij,jk->...ik", x, y)`, or `einsum(x, [0, 1], y, [1, 2], [0, 2])`.

    Repeated letters take diagonals, a missing `->` sums the letters that occur twice, `...` broadcasts, an axis of size 1 fits
    any size. Three or more operands are contracted in a greedy order chosen while staging, or along the path in `optimize`.
    Raises ValueError for subscripts that are malformed or do not fit the operands.
    """
    if out is not None:
        raise MutationError("einsum: out= cannot be recorded; use the result")
    if not operands:
        raise ShapeError("einsum: no subscripts")
    subscripts, values = (_parse_text(operands[0]), list(operands[1:])) if isinstance(operands[0], str) else _parse_lists(operands)
    if not values:
        raise ShapeError("einsum: no operands")
    values = promoted(*(operand(v) for v in values), strong=True)
    if dtype is not None:
        values = [cast(v, as_dtype(dtype)) for v in values]
    result_dtype = dtype_of(values[0])[0]
    if is_float(result_dtype) and result_dtype.itemsize == 2:
        values = [cast(v, FLOAT32) for v in values]
    inputs, output = _expanded(subscripts, values)
    terms = [_diagonal(value, labels) for value, labels in zip(values, inputs, strict=True)]
    sizes = _checked_sizes(terms, subscripts)
    terms = [without_stretched(term, sizes) for term in terms]
    result = _spread_to(_contract_all(terms, output, _path(optimize, len(terms)), sizes), output, sizes)
    value = cast(ordered(result, output).value, result_dtype)
    if len(values) == 1 and isinstance(value, Tracer) and len(output) == len(set(inputs[0])) and isinstance(values[0], Tracer):
        return mark_view(value, values[0])
    return value


def _checked_sizes(terms: Sequence[Term], subscripts: _Subscripts) -> dict[Label, DimLike]:
    try:
        return label_sizes(terms)
    except ShapeError as error:
        raise ShapeError(f"einsum: {subscripts.text!r}: {error.message}") from None


@implements(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """(path, description) of the order in which NumPy would contract the operands: of their shapes alone, which must be known.

    Raises ShapeError for sizes that are known only at run time.
    """
    find_path: Any = np.einsum_path
    return find_path(*(_stand_in(x) for x in operands), optimize=optimize, einsum_call=einsum_call)


def _stand_in(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return x
    if not all(isinstance(d, int) for d in x.shape):
        raise ShapeError(f"einsum_path: the sizes of an operand of shape {list(x.shape)} must be known to compare costs")
    return np.broadcast_to(np.zeros((), x.dtype), [int(d) for d in x.shape])
