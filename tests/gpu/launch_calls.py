"""Counts the calls that put work on the device in ten captured steps, by torch's profiler; prints JSON.

A program of its own: a profiler that was once attached slows every later launch of its process.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.gpu.steps import alone, capture, preset

STEPS = 10


def main() -> None:
    """Prints {"calls": {name: count}, "kernels": device kernels, "nodes": nodes of the graph}."""
    setup = preset("toy-mlp", alone())
    captured = capture(setup)
    rows = [setup.rows(number) for number in range(STEPS)]
    captured.step(rows[0])
    captured.step.metrics()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for batch in rows:
            captured.step(batch)
            captured.step.metrics()
        torch.cuda.synchronize()
    events = list(profile.events())
    calls = Counter(e.name for e in events if e.name.startswith("cu") and e.device_type.name == "CPU")
    kernels = Counter(e.name for e in events if e.device_type.name == "CUDA")
    view = captured.step.shapes[0].view
    assert view is not None
    print(json.dumps({"calls": calls, "kernels": sum(kernels.values()), "nodes": len(view.nodes)}))
    captured.step.close()


if __name__ == "__main__":
    main()
