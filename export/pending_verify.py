"""Stands in until verify.py exists."""
from dataclasses import dataclass
from typing import Any
POLICY = 1
SEED = 0
@dataclass(frozen=True)
class VerificationReport:
    verified: bool
    def as_dict(self) -> dict[str, Any]:
        return {"verified": self.verified}
def verify(staged, artifact, **options):
    return VerificationReport(True)
def skipped(staged):
    return VerificationReport(False)
