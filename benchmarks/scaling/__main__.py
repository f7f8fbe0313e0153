"""How does the step scale with devices? Measures, predicts, and models beyond what was measured.

    python -m benchmarks.scaling measure --presets micro,mini,gpt2-124m --devices 1,2,4,8 --out scaling
    python -m benchmarks.scaling report scaling
    python -m benchmarks.scaling predict benchmarks/results/bench_h200 --devices 4 --out scaling

`measure` can be broken off and started again. `predict` and `report` read any folder of `parity bench` runs.
Exit code: 0; 1, 4 or 5 what parity compare says of a side on one and on several devices, in whichever call it
was found; 2 usage; 6 something was not finished.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scaling import chart, prediction, report, table
from benchmarks.scaling.measure import measure
from benchmarks.scaling.model import Node
from benchmarks.scaling.prediction import NodeRecord
from benchmarks.scaling.study import Study
from parity.report.result import write
from spec import record
from spec.errors import ExitCode, RuleError


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = parser().parse_args(argv)
    try:
        return int(options.command(options))
    except RuleError as error:
        print(error.message(), file=sys.stderr)
        return int(error.code)
    except OSError as error:
        # Of the many writes below --out any can be the first; an error without a file is not about --out.
        if error.filename is None:
            raise
        numbers = f"{error.filename}: {error.strerror}"
        told = RuleError("The files of a study can be read and written.", numbers, "name a writable --out")
        print(told.message(), file=sys.stderr)
        return int(told.code)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on", file=sys.stderr)
        return int(ExitCode.CRASHED)


def _measure(options: argparse.Namespace) -> ExitCode:
    more = []
    for name in ("windows", "steps_per_window", "calls", "warmup_steps"):
        if (value := getattr(options, name)) is not None:
            more += [f"--{name.replace('_', '-')}", str(value)]
    study = Study(
        presets=tuple(options.presets.split(",")),
        devices=_counts(options.devices),
        out=options.out.absolute(),
        device=options.device,
        budget_s=options.budget_s,
        assumed=_assumed(options),
        traced=options.trace,
        more=tuple(more),
    )
    return measure(study)


def _predict(options: argparse.Namespace) -> ExitCode:
    counts = _counts(options.devices)
    if len(counts) != 1 or counts[0] < 1:
        raise RuleError(
            "A prediction is of one number of devices, from 1 on.",
            f"--devices {options.devices}",
            "one count a call, as --devices 4",
        )
    print(prediction.write([options.folder], counts[0], options.out or options.folder, _assumed(options)))
    return ExitCode.SAME


def _report(options: argparse.Namespace) -> ExitCode:
    out = options.out or options.folder
    found = report.make(list(dict.fromkeys([options.folder, out])), _assumed(options))
    page = table.markdown(found)
    write(found, out / "scaling.json")
    record.write_text(out / "scaling.md", page)
    record.write_text(out / "scaling.svg", chart.draw(found))
    print(page)
    return ExitCode.SAME


def _counts(words: str) -> tuple[int, ...]:
    found = [int(word) for word in words.split(",") if word.strip().isdecimal()]
    if len(found) != len(words.split(",")):
        raise RuleError("Devices are whole numbers, separated by commas.", f"--devices {words}", "1,2,4,8")
    return tuple(found)


def _assumed(options: argparse.Namespace) -> NodeRecord:
    assumed = NodeRecord(
        devices=options.node_devices, gb_per_s=options.between_gb_per_s, latency_us=options.between_latency_us
    )
    if assumed.devices < 1 or assumed.gb_per_s <= 0 or assumed.latency_us < 0:
        raise RuleError("Nodes have devices, and links between them carry bytes.", str(assumed))
    return assumed


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = found.add_subparsers(required=True)
    one = commands.add_parser("measure", help="run parity bench, run and compare for every preset and count")
    one.add_argument("--presets", default="micro,mini,gpt2-124m")
    one.add_argument("--devices", default="1,2,4,8")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    one.add_argument(
        "--budget-s", type=float, default=math.inf, help="stop cleanly after so many seconds, 20 at least"
    )
    one.add_argument("--trace", action=argparse.BooleanOptionalAction, default=True)
    for name in ("--windows", "--steps-per-window", "--calls", "--warmup-steps"):
        one.add_argument(name, type=int, help="as parity bench has it")
    one.set_defaults(command=_measure)
    two = commands.add_parser("predict", help="write down what smaller counts say of one not measured yet")
    two.add_argument("folder", type=Path)
    two.add_argument("--devices", required=True)
    two.add_argument("--out", type=Path)
    two.set_defaults(command=_predict)
    three = commands.add_parser("report", help="scaling.json, scaling.md and scaling.svg of a folder")
    three.add_argument("folder", type=Path)
    three.add_argument("--out", type=Path)
    three.set_defaults(command=_report)
    for each in (one, two, three):
        _add_assumed(each)
    return found


def _add_assumed(parser: argparse.ArgumentParser) -> None:
    """What the model assumes of a cluster that nobody measured."""
    usual = Node()
    parser.add_argument("--node-devices", type=int, default=usual.devices, help="devices of one node")
    parser.add_argument(
        "--between-gb-per-s",
        type=float,
        default=usual.between.bytes_per_ms / 1e6,
        help="GB/s of a device to other nodes; the default is 80 %% of a 400 Gb/s adapter each",
    )
    parser.add_argument(
        "--between-latency-us",
        type=float,
        default=usual.between.latency_ms * 1e3,
        help="us of a hop between nodes",
    )


if __name__ == "__main__":
    sys.exit(main())
