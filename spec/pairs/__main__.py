"""`python -m spec.pairs outline|write FOLDER OUT [STEPS]`: reads a user's `pair.py`, for the referee.

`outline` writes `OUT/outline.json`, `write` the batches; a broken rule becomes `OUT/error.json`.
"""

import sys
from pathlib import Path

from spec import codec, record
from spec.errors import ExitCode, RuleError
from spec.pairs import materialise


def main(action: str, folder: str, out: str, steps: str = "0") -> int:
    """Does one of the two and returns the exit code."""
    try:
        if action == "outline":
            record.write_json(Path(out) / "outline.json", codec.to_dict(materialise.outline(Path(folder))))
        else:
            materialise.write(Path(folder), Path(out), int(steps))
    except RuleError as error:
        parts = {"rule": error.rule, "numbers": error.numbers, "mend": error.mend}
        record.write_json(Path(out) / "error.json", parts)
        return int(ExitCode.USAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
