"""Random numbers as functions of explicit keys.

    key = ons.random.key(0)
    key, noise = ons.random.split(key)
    x = ons.random.normal(noise, (3, 4))

A key is a 0-d uint64 array: an ordinary array that may be an argument of a staged program, carried by a loop, and batched over by `vmap`,
which draws for every key what a loop over the keys would. The same key gives the same numbers, on every machine: use each key once, and
derive new ones by `split` and `fold_in`. Shapes may hold named dims.
"""

from __future__ import annotations

from .ops.random.bits import bits as bits
from .ops.random.distributions import bernoulli as bernoulli
from .ops.random.distributions import exponential as exponential
from .ops.random.distributions import gumbel as gumbel
from .ops.random.distributions import normal as normal
from .ops.random.distributions import truncated_normal as truncated_normal
from .ops.random.distributions import uniform as uniform
from .ops.random.keys import fold_in as fold_in
from .ops.random.keys import key as key
from .ops.random.keys import split as split
from .ops.random.sampling import categorical as categorical
from .ops.random.sampling import choice as choice
from .ops.random.sampling import permutation as permutation
