"""Linear algebra of the last two axes (`onstage.numpy.linalg`), on NumPy arrays, `ons.Array`s and traced arrays alike."""

# What is imported here is what the namespace offers.
# pyright: reportUnusedImport=false

from __future__ import annotations

from numpy.linalg import LinAlgError as LinAlgError

from .ops.linalg.determinant import det as det
from .ops.linalg.determinant import slogdet as slogdet
from .ops.linalg.factorization import cholesky as cholesky
from .ops.linalg.least_squares import cond as cond
from .ops.linalg.least_squares import lstsq as lstsq
from .ops.linalg.least_squares import matrix_rank as matrix_rank
from .ops.linalg.least_squares import pinv as pinv
from .ops.linalg.norms import matrix_norm as matrix_norm
from .ops.linalg.norms import norm as norm
from .ops.linalg.norms import vector_norm as vector_norm
from .ops.linalg.reflections import qr as qr
from .ops.linalg.spectral import eigh as eigh
from .ops.linalg.spectral import eigvalsh as eigvalsh
from .ops.linalg.spectral import svd as svd
from .ops.linalg.spectral import svdvals as svdvals
from .ops.linalg.systems import inv as inv
from .ops.linalg.systems import solve as solve
from .ops.linalg.systems import solve_triangular as solve_triangular
from .ops.linalg.systems import tensorinv as tensorinv
from .ops.linalg.systems import tensorsolve as tensorsolve
from .ops.matmul import matmul as matmul
from .ops.matrices import matrix_diagonal as diagonal
from .ops.matrices import matrix_trace as trace
from .ops.products import linalg_cross as cross
from .ops.products import linalg_outer as outer
from .ops.products import matrix_power as matrix_power
from .ops.products import multi_dot as multi_dot
from .ops.products import tensordot as tensordot
from .ops.products import vecdot as vecdot
from .ops.shape import matrix_transpose as matrix_transpose
