"""The one exception that speaks to users: which rule was broken, by which numbers, and how to mend it."""

import difflib
from collections.abc import Iterable, Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command. Where several apply the order of `PRECEDENCE` decides."""

    SAME = 0
    DIFFERENT = 1
    USAGE = 2
    SLOWER = 3
    INCONCLUSIVE = 4
    NOT_COMPARABLE = 5
    CRASHED = 6


PRECEDENCE = (
    ExitCode.CRASHED,
    ExitCode.NOT_COMPARABLE,
    ExitCode.DIFFERENT,
    ExitCode.SLOWER,
    ExitCode.INCONCLUSIVE,
)


class RuleError(ValueError):
    """Input that breaks a rule: one clear message, exit code 2, no traceback.

    Args:
      rule: what must hold, as a sentence.
      numbers: the offending values.
      mend: what the user can do.
    """

    code = ExitCode.USAGE

    def __init__(self, rule: str, numbers: str = "", mend: str = "") -> None:
        self.rule, self.numbers, self.mend = rule, numbers, mend
        super().__init__(self.message())

    def message(self) -> str:
        """At most three lines: the rule, the numbers, the mend."""
        lines = [self.rule]
        if self.numbers:
            lines.append(f"  found: {self.numbers}")
        if self.mend:
            lines.append(f"  mend:  {self.mend}")
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean X?  ` for the beginning of a mend; empty where nothing known is near.

    Near is what differs in a few letters, or has the name as a part of three letters at least.
    """
    all_known = list(known)
    parts = [one for one in all_known if len(name) >= 3 and name in one]
    near = difflib.get_close_matches(name, all_known, n=1, cutoff=0.6) or parts
    return f"did you mean {near[0]}?  " if near else ""


def few(many: Sequence[str], most: int = 4, between: str = "; ") -> str:
    """The first of many on one line, and how many more there are."""
    return between.join(many[:most]) + (f" and {len(many) - most} more" if len(many) > most else "")
