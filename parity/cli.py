"""The way in: `parity run | train | bench | compare | explain | power | equivalence | report | data |
init-pair | doctor`.

Standard output carries the verdict line, one table and paths, or JSON alone; progress and complaints go to
standard error. Exit codes are `spec.errors.ExitCode`'s. What each command does stands in the file of its
name.
"""

import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from parity import command_line
from parity import options as commands
from parity.standard_output import lasting_output
from spec.errors import ExitCode, RuleError


def main(arguments: Sequence[str] | None = None) -> int:
    """Does one command and returns its exit code; a broken rule is a few lines on standard error."""
    with lasting_output():
        return _main(list(sys.argv[1:] if arguments is None else arguments))


def _main(argv: list[str]) -> int:
    try:
        command = command_line.parse(argv)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        code = int(_do(command, argv))
        sys.stdout.flush()
        return code
    except RuleError as error:
        print(error.message(), file=sys.stderr)
        return int(error.code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return int(ExitCode.CRASHED)
    except Exception:
        # Python's own exit code would be 1, which says DIFFERENT.
        traceback.print_exc()
        return int(ExitCode.CRASHED)


def options() -> list[str]:
    """Every subcommand and option as the command line exposes it, such as `run --backend`."""
    return command_line.exposed()


def _interrupt(signal_number: int, frame: object) -> None:
    """A request to end is treated as Ctrl-C is: clean up and leave what was measured."""
    raise KeyboardInterrupt


def _do(command: Any, argv: list[str]) -> ExitCode:
    # Imported here: NumPy and the rest cost more than reading `--help` does.
    match command:
        case commands.Run() | commands.Train():
            from parity.training import run

            return run(command, argv)
        case commands.Bench():
            from parity.bench.command import bench

            return bench(command, argv)
        case commands.Compare():
            from parity.compare import compare

            return compare(command)
        case commands.Explain():
            from parity.explain.command import explain

            return explain(command)
        case commands.Power():
            from parity.power import power

            return power(command)
        case commands.Equivalence():
            from parity.equivalence.command import equivalence

            return equivalence(command, argv)
        case commands.Report():
            from parity.report_command import report

            return report(command)
        case commands.Data():
            from parity.data import prepare

            assert command.action is not None
            return prepare(command.action)
        case commands.InitPair():
            from parity.pairs.template import init_pair

            return init_pair(command)
        case _:
            from parity.doctor import doctor

            return doctor(command)


if __name__ == "__main__":
    sys.exit(main())
