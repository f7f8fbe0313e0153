"""How far apart two right sides are: the raw figures behind `parity/judge/tolerances.py`.

Runs presets on seeds that no reported run uses, and writes the largest difference of every quantity in every
run as one JSON file, with the conditions. From the project's folder:

    python benchmarks/calibrate_tolerances.py --precision strict --out benchmarks/results/tolerances/NAME.json
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CASES = {
    "tiny": ["tiny", "--steps", "50"],
    "tiny, one device": ["tiny", "--steps", "50", "--devices", "1", "--global-batch", "8"],
    "tiny, 100 steps": ["tiny", "--steps", "100", "--devices", "1", "--global-batch", "8"],
    "tiny, wide batch": ["tiny", "--steps", "20", "--devices", "1", "--global-batch", "64"],
    "tiny, inductor": ["tiny", "--steps", "50", "--mode", "torch=inductor"],
    "toy-mlp": ["toy-mlp", "--steps", "100"],
}
SEEDS = range(100, 108)


def main() -> None:
    """Runs all cases on all seeds and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    runs, environment = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            for seed in options.seeds:
                words = [*CASES[case], "--precision", options.precision, "--seed", str(seed)]
                result = run([*words, "--device", options.device, "--out", folder])
                environment = describe(Path(result["runs"][0]["folder"]))
                runs.append({"case": case, "seed": seed, **largest(result)})
                print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    quantities = sorted({name for run in runs for name in run} - {"case", "seed"})
    summary = {name: maximum(runs, name) for name in quantities}
    asked = {"precision": options.precision, "device": options.device, "cases": options.cases}
    content = {"asked": asked, "environment": environment, "largest": summary, "runs": runs}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(content, indent=1) + "\n")


def run(words: list[str]) -> dict[str, Any]:
    """The result of one run, whatever its verdict."""
    command = [sys.executable, "-m", "parity", "run", *words, "--no-time", "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)} ended with exit code {done.returncode}")
    return json.loads(done.stdout)


def largest(result: dict[str, Any]) -> dict[str, list[float]]:
    """[largest rms_rel, largest max_rel] of every quantity of the tolerance table."""
    numerics, found = result["numerics"], {}
    for curve in ("loss", "grad_norm", "lr"):
        difference = numerics[curve]
        found[curve] = [difference["max_rel"]] * 2
        a, b = (float(value) for value in difference["first"].values())
        found[f"first_{curve}"] = [abs(a - b) / max(abs(a), abs(b))] * 2
    for tensor in numerics["tensors"]:
        name = tensor["phase"] if tensor["step"] == 0 else f"last_{tensor['phase']}"
        name += " (exact gradient zero)" if tensor["note"] else ""
        rms_rel, max_rel = found.get(name, [0.0, 0.0])
        found[name] = [max(rms_rel, tensor["rms_rel"]), max(max_rel, tensor["max_rel"])]
    return found


def maximum(runs: list[dict[str, Any]], quantity: str) -> list[float]:
    """The largest of all runs, both measures."""
    pairs = [run[quantity] for run in runs if quantity in run]
    return [max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)]


def describe(folder: Path) -> dict[str, Any]:
    """Versions, machine and commit of a run."""
    environment = json.loads((folder / "run.json").read_text())["environment"]
    return {
        name: environment[name] for name in ("utc", "python", "platform", "cpu", "packages", "code", "gpus")
    }


if __name__ == "__main__":
    main()
