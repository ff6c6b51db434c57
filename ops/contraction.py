"""Contraction of labelled arrays: two at a time, as one matrix product wherever there is something to sum."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..stage.dims import broadcast_dim, product
from ..stage.dtypes import INT64
from ..stage.spec import DimLike, Shape
from ..stage.trace import bind
from .arithmetic import multiply
from .comparison import not_equal
from .matmul import matmul_p
from .operands import cast, is_bool, shape_of
from .structure import reduce_sum_p, reshape_p, transpose_p

Label: TypeAlias = Hashable
Labels: TypeAlias = tuple[Label, ...]

# Stands for the size of a named dim where the costs of contractions are compared
_TYPICAL_SIZE = 64


class Term(NamedTuple):
    """An array whose axes carry labels, each at most once."""

    value: Any
    labels: Labels

    def dim(self, label: Label) -> DimLike:
        return shape_of(self.value)[self.labels.index(label)]

    def dims(self, labels: Iterable[Label]) -> Shape:
        return tuple(self.dim(label) for label in labels)


def ordered(term: Term, labels: Sequence[Label]) -> Term:
    """The term with its axes in the order of `labels`, which are all of its own."""
    labels = tuple(labels)
    if labels == term.labels:
        return term
    return Term(bind(transpose_p, term.value, permutation=tuple(term.labels.index(label) for label in labels)), labels)


def summed(term: Term, kept: Iterable[Label]) -> Term:
    """The term summed over the labels that are not kept; booleans are or-ed."""
    keep = set(kept)
    axes = tuple(i for i, label in enumerate(term.labels) if label not in keep)
    if not axes:
        return term
    labels = tuple(label for label in term.labels if label in keep)
    if is_bool(term.value):
        return Term(not_equal(bind(reduce_sum_p, cast(term.value, INT64), axes=axes, keepdims=False), 0), labels)
    return Term(bind(reduce_sum_p, term.value, axes=axes, keepdims=False), labels)


def contract(x: Term, y: Term, kept: Iterable[Label], wanted: Sequence[Label] = ()) -> Term:
    """The product of two terms, summed over the labels that are not kept. `wanted`: an order of labels to prefer in the result."""
    keep = set(kept)
    x = summed(x, keep | set(y.labels))
    y = summed(y, keep | set(x.labels))
    inner = [label for label in x.labels if label in y.labels and label not in keep]
    if not inner:
        return _outer(x, y)
    left = [label for label in x.labels if label not in y.labels]
    right = [label for label in y.labels if label not in x.labels]
    batch = [label for label in x.labels if label in y.labels and label in keep]
    if batch and not left and not right:
        # One dot product for each batch element: a matrix product has nothing to reuse
        return summed(_outer(x, y), batch)
    first = next((label for label in wanted if label in left or label in right), None)
    if first in right:
        x, y, left, right = y, x, right, left
    other = [label for label in y.labels if label in inner]
    if inner != other and _moves(x, y, batch, left, right, other) < _moves(x, y, batch, left, right, inner):
        inner = other
    rows = _matrices(ordered(x, [*batch, *left, *inner]), len(batch), len(left))
    columns = _matrices(ordered(y, [*batch, *inner, *right]), len(batch), len(inner))
    result = bind(matmul_p, rows, columns)
    shape = (*x.dims(batch), *x.dims(left), *y.dims(right))
    if len(left) != 1 or len(right) != 1:
        result = bind(reshape_p, result, shape=shape)
    return Term(result, (*batch, *left, *right))


def _moves(x: Term, y: Term, batch: Sequence[Label], left: Sequence[Label], right: Sequence[Label], inner: Sequence[Label]) -> int:
    """How many operands would have to be transposed."""
    return (x.labels != (*batch, *left, *inner)) + (y.labels != (*batch, *inner, *right))


def _matrices(term: Term, batch: int, rows: int) -> Any:
    """The axes after the batch as matrices: the first `rows` of them as one, the others as one."""
    shape = shape_of(term.value)
    if rows == 1 and len(shape) == batch + 2:
        return term.value
    matrix = (product(shape[batch : batch + rows]), product(shape[batch + rows :]))
    return bind(reshape_p, term.value, shape=(*shape[:batch], *matrix))


def _outer(x: Term, y: Term) -> Term:
    """The product with nothing summed, in x's order and then y's."""
    added = [label for label in y.labels if label not in x.labels]
    labels = (*x.labels, *added)
    a, b = x.value, y.value
    if added and x.labels:
        a = bind(reshape_p, a, shape=(*shape_of(a), *(1,) * len(added)))
    if y.labels != labels:
        present = ordered(y, [label for label in labels if label in y.labels])
        b = bind(reshape_p, present.value, shape=tuple(y.dim(label) if label in y.labels else 1 for label in labels)) if y.labels else b
    return Term(multiply(a, b), labels)


def label_sizes(terms: Iterable[Term]) -> dict[Label, DimLike]:
    """The size of each label; ShapeError where two terms disagree. An axis of size 1 fits every size."""
    sizes: dict[Label, DimLike] = {}
    for term in terms:
        for label, dim in zip(term.labels, shape_of(term.value), strict=True):
            sizes[label] = broadcast_dim(sizes[label], dim) if label in sizes else dim
    return sizes


def without_stretched(term: Term, sizes: dict[Label, DimLike]) -> Term:
    """The term without the axes of size 1 whose label is larger elsewhere: its values are the same along them."""
    stretched = {
        label
        for label, dim in zip(term.labels, shape_of(term.value), strict=True)
        if type(dim) is int and dim == 1 and not _is_one(sizes[label])
    }
    if not stretched:
        return term
    labels = tuple(label for label in term.labels if label not in stretched)
    return Term(bind(reshape_p, term.value, shape=term.dims(labels)), labels)


def _is_one(dim: DimLike) -> bool:
    return type(dim) is int and dim == 1


def greedy_pair(labels: Sequence[Labels], output: Labels, sizes: dict[Label, DimLike]) -> tuple[int, int]:
    """The two of three or more terms to contract next: whose result exceeds them least. Named dims count as a typical size."""
    best: tuple[float, float, int, int] | None = None
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            others = {label for k, term in enumerate(labels) if k not in (i, j) for label in term} | set(output)
            both = set(labels[i]) | set(labels[j])
            result = [label for label in both if label in others]
            growth = _volume(result, sizes) - _volume(labels[i], sizes) - _volume(labels[j], sizes)
            candidate = (growth, _volume(both, sizes), i, j)
            if best is None or candidate < best:
                best = candidate
    assert best is not None
    return best[2], best[3]


def _volume(labels: Iterable[Label], sizes: dict[Label, DimLike]) -> float:
    volume = 1.0
    for label in labels:
        size = sizes[label]
        volume *= size if type(size) is int else _TYPICAL_SIZE
    return volume
