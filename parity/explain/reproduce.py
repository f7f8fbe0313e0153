"""Makes one step on each side from the state in this folder, and shows where they part first.

    python reproduce.py

Needs torch-jax-parity, PyTorch and JAX. `torch.json` and `jax.json` are the jobs, `states/` what the step
starts from, `batches/` its rows, `first.json` what parted when this folder was written.
"""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

from spec.job import Job, read_job
from spec.weights import load_tensors

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Exit code 1 where the sides part, as they did."""
    first = json.loads((HERE / "first.json").read_text())
    out = Path(mkdtemp(prefix="parity-reproduce-"))
    folders = {side: _step(read_job(HERE / f"{side}.json"), out / side) for side in ("torch", "jax")}
    lines = {side: _line(folder) for side, folder in folders.items()}
    print("loss", {side: line["loss"] for side, line in lines.items()})
    if not first["tensor"]:
        print(first["phase"], {side: line[first["phase"]] for side, line in lines.items()})
        return int(lines["torch"][first["phase"]] != lines["jax"][first["phase"]])
    a, b = (_tensor(folders[side], first, side) for side in ("torch", "jax"))
    far = np.abs(a - b)
    index = np.unravel_index(int(far.argmax()), far.shape)
    print(f"{first['phase']}/{first['tensor']}, step {first['step']}: RMS of the difference {rms(a - b):.3e}")
    place, worst = [int(i) for i in index], [float(one[index]) for one in (a, b)]
    print(f"RMS {rms(a):.3e}, {rms(b):.3e}; worst at {place}: {worst[0]!r}, {worst[1]!r}")
    print(f"all tensors: {out}")
    return int(rms(a - b) > 1e-12 * rms(b))


def rms(array: np.ndarray) -> float:
    """Root of the mean of the squares."""
    return float(np.sqrt(np.mean(np.square(array))))


def _step(job: Job, out: Path) -> Path:
    job = replace(job, out=str(out), state=str(HERE / "states"), batches=str(HERE / "batches"))
    subprocess.run([sys.executable, "-m", f"{job.side}_impl", "work", str(job.write())], check=True)
    return out


def _line(folder: Path) -> dict[str, float]:
    return json.loads((folder / "steps.rank0.jsonl").read_text().splitlines()[0])


def _tensor(folder: Path, first: dict[str, str], side: str) -> np.ndarray:
    file = next((folder / "tensors").glob("step*.safetensors"))
    key = f"{first['phase']}/{first['names'][side]}"  # type: ignore[index]
    return load_tensors(file, [key])[key].astype(np.float64)


if __name__ == "__main__":
    sys.exit(main())
