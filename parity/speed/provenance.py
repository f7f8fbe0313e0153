"""May the figures of a traced pass stand beside those of the timed ones: did it run the same program?

Tracing changes what it looks at: XLA may leave its command buffers, a plan may be chosen anew. Must not:
count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from spec.trace import Program


@dataclass(frozen=True)
class Provenance:
    """What the traced and the timed passes have in common."""

    same_program: bool
    same_end_state: bool
    reproducible: bool
    """Whether the timed passes themselves ended in one state."""

    @property
    def refusal(self) -> str:
        """Why the figures are not those of the timed step; empty where they are."""
        if not self.same_program:
            return "the traced pass ran another program than the timed ones (program_sha256)"
        if not self.same_end_state and self.reproducible:
            return "the traced pass ended in another state than the timed ones (digest.rank0.json)"
        return ""

    @property
    def note(self) -> str:
        """What the comparison could not use; empty where it used everything."""
        if self.same_end_state or self.reproducible:
            return ""
        return "timed passes differ in their last bits among themselves, so the program alone was compared"


def compare(traced: Program, timed: Sequence[Program]) -> Provenance:
    """The traced pass against the timed ones of the same mode, one at least."""
    states = {program.end_state_sha256 for program in timed}
    return Provenance(
        same_program=traced.sha256 in {program.sha256 for program in timed},
        same_end_state=traced.end_state_sha256 in states,
        reproducible=len(states) == 1,
    )
