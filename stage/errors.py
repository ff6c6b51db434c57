"""The errors of onstage: every one derives from `OnstageError` and the matching builtin.

A message says what failed, what was got and expected, the user's own file and line, and a way out.
The line is found by itself: an error made while user code is on the stack names the innermost frame
that is neither onstage's nor NumPy's; an error about an equation recorded earlier is given its source.
"""

from __future__ import annotations

from .source import Source, user_source


class OnstageError(Exception):
    """Base of all errors that onstage raises on purpose.

    `source` is the place in the user's code the error is about; None where no user code is involved.
    """

    def __init__(self, message: str, *, source: Source | None = None) -> None:
        self.message = message
        self.source = source if source is not None else user_source()
        super().__init__(message if self.source is None else f"{message}\n  at {self.source.describe()}")

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.source))


def _rebuild(cls: type[OnstageError], message: str, source: Source | None) -> OnstageError:
    return cls(message, source=source)


class ShapeError(OnstageError, ValueError):
    """Shapes that do not fit, or dims that could not be compared."""


class DTypeError(OnstageError, TypeError):
    """A dtype that an operation or onstage as a whole does not take."""


class SignatureTypeError(OnstageError, TypeError):
    """A call with another tree, or a leaf that is no array, than the program was staged for."""


class SignatureValueError(OnstageError, ValueError):
    """A call with another shape or dtype than the program was staged for."""


class TracingError(OnstageError, TypeError):
    """User code did something that a trace cannot record."""


class ConcretizationError(TracingError):
    """A value was asked for that is known only when the staged program runs."""


class EscapedTracerError(TracingError):
    """A tracer was used after its trace ended, or on another thread."""


class MutationError(TracingError):
    """A mutation that cannot be turned into a functional update."""


class MissingRuleError(OnstageError, NotImplementedError):
    """A primitive has no rule for what was asked of it."""


class UnsupportedError(OnstageError, NotImplementedError):
    """Something onstage does not do: an operation, a dtype or a combination, named in the message."""


class NonlinearRuleError(OnstageError, ValueError):
    """A jvp rule is not linear in its tangents."""


class CheckError(OnstageError, AssertionError):
    """A check of onstage.testing failed: a rule or a gradient is wrong."""


class VerificationError(OnstageError, RuntimeError):
    """A lowered program computes something else than the reference interpreter."""


class ArtifactError(OnstageError, ValueError):
    """A file that is damaged, edited, foreign, or of an unknown version."""


class ShardingError(OnstageError, ValueError):
    """A sharding that does not fit its mesh, array or operation."""


class ProviderError(OnstageError, RuntimeError):
    """An execution provider that was asked for is not usable here."""


class ProgramError(OnstageError, RuntimeError):
    """A Program that breaks the rules of the IR: a fault in onstage or in a primitive's rule, never in user code."""
