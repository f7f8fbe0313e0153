"""`parity report`: draws the page of a saved run again, from what is in its folder. Needs no framework."""

import sys
from pathlib import Path

from parity import folders
from parity.options import Report
from parity.report import page
from spec.errors import ExitCode


def report(options: Report) -> ExitCode:
    """Writes `report.html` into the run folder and prints its path. Returns the exit code.

    Raises:
      RuleError: there is no such run, or it holds no result.
    """
    drawn = page.write(folders.find(options.run, Path(options.out)))
    sys.stdout.write(f"report: {drawn}\n")
    return ExitCode.SAME
