"""The Array API namespace with NumPy's names beside it, on NumPy arrays, `ons.Array`s and traced arrays alike.

Sizes may be named dims: `arange(x.shape[0])`. What plain `np.f(tracer)` does, `f` does here, and also what NumPy cannot hand over to
a traced array: `stack([t, t])`, `take(constant, t)`, `full(shape, t)`.
"""

from __future__ import annotations

from .ops.arithmetic import add as add
from .ops.arithmetic import multiply as multiply
from .ops.arithmetic import negative as negative
from .ops.arithmetic import subtract as subtract
from .ops.arithmetic import true_divide as divide
from .ops.arithmetic import true_divide as true_divide
from .ops.arithmetic import where as where
from .ops.comparison import equal as equal
from .ops.comparison import greater as greater
from .ops.comparison import greater_equal as greater_equal
from .ops.comparison import less as less
from .ops.comparison import less_equal as less_equal
from .ops.comparison import logical_and as logical_and
from .ops.comparison import logical_not as logical_not
from .ops.comparison import logical_or as logical_or
from .ops.comparison import logical_xor as logical_xor
from .ops.comparison import not_equal as not_equal
from .ops.exponential import exp as exp
from .ops.exponential import log as log
from .ops.exponential import sqrt as sqrt
from .ops.exponential import tanh as tanh
from .ops.matmul import matmul as matmul
from .ops.statistics import mean as mean
from .ops.reductions import sum as sum
