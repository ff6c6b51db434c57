"""Special functions, on NumPy arrays, `ons.Array`s and traced arrays alike; the ufuncs of scipy.special of these names are staged too."""

from __future__ import annotations

from .ops.gamma import digamma as digamma
from .ops.gamma import gammaln as gammaln
from .ops.special import erf as erf
from .ops.special import erfc as erfc
from .ops.special import erfinv as erfinv
from .ops.special import expit as expit
from .ops.special import logit as logit
from .ops.special import ndtr as ndtr
from .ops.special import ndtri as ndtri
from .ops.special import xlogy as xlogy
from .ops.statistics import logsumexp as logsumexp
