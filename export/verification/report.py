"""What verification found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OutputCheck:
    """One output: the worst error against the reference over all samples and levels, and the tolerance where it was met.

    error and tolerance: absolute, in the output's unit; both 0 where every bit agreed. reason: why the output counts as not
    verified; empty for a verified one. note: what else should be known.
    """

    name: str
    error: float
    tolerance: float
    reason: str = ""
    note: str = ""

    @property
    def verified(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class VerificationReport:
    """The result of a verification that found no fault.

    outputs: one check an output. samples: what was put in. levels: of ONNX Runtime's optimiser, at which the final bytes ran.
    equations: how many were checked one by one, on each sample. notes: samples that could not be made, inputs that never
    changed, equations that have no higher precision.
    """

    name: str
    outputs: tuple[OutputCheck, ...]
    samples: tuple[str, ...]
    levels: tuple[str, ...]
    equations: int
    seconds: float
    seed: int
    rtol: float | None = None
    atol: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def verified(self) -> tuple[str, ...]:
        """Names of the outputs that were verified."""
        return tuple(o.name for o in self.outputs if o.verified)

    @property
    def not_verified(self) -> dict[str, str]:
        """Names of the outputs that were not, and why."""
        return {o.name: o.reason for o in self.outputs if not o.verified}

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dump`; numbers that JSON does not know are text."""
        return {
            "program": self.name,
            "outputs": [
                {
                    "name": o.name,
                    "verified": o.verified,
                    "error": _number(o.error),
                    "tolerance": _number(o.tolerance),
                }
                | ({"reason": o.reason} if o.reason else {})
                | ({"note": o.note} if o.note else {})
                for o in self.outputs
            ],
            "samples": list(self.samples),
            "levels": list(self.levels),
            "equations": self.equations,
            "seconds": round(self.seconds, 3),
            "policy": self.policy(),
            "notes": list(self.notes),
        }

    def policy(self) -> dict[str, Any]:
        """What of the verification does not depend on the machine."""
        return {"seed": self.seed, "rtol": self.rtol, "atol": self.atol}

    def __str__(self) -> str:
        count = len(self.verified)
        lines = [
            f"{self.name}: {count} of {len(self.outputs)} outputs verified, {self.equations} equations each on {len(self.samples)} "
            f"samples, {self.seconds:.1f} s"
        ]
        width = max((len(o.name) for o in self.outputs), default=0)
        for o in self.outputs:
            state = f"error {o.error:.2e} of {o.tolerance:.2e}" if o.error else "every bit equal"
            lines.append(f"  {o.name:<{width}}  {state if o.verified else 'NOT VERIFIED: ' + o.reason}{'; ' + o.note if o.note else ''}")
        lines.append(f"  samples: {', '.join(self.samples)}")
        lines.append(f"  levels: {', '.join(self.levels)}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        missing = f", not verified: {', '.join(self.not_verified)}" if self.not_verified else ""
        return f"<VerificationReport {self.name}: {len(self.verified)} of {len(self.outputs)} outputs verified{missing}>"


def _number(value: float) -> float | str:
    return value if value == value and abs(value) != float("inf") else str(value)
