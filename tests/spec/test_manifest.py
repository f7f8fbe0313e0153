"""What a side says of itself in a job, and what it says is not known."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spec.job import Job
from spec.own_optimizer import UNKNOWN_DECAY, OwnOptimizer
from spec.presets import run_spec
from spec.run import AdamW
from spec.worker.manifest import Manifest


def written(out: Path, optimizer: AdamW | OwnOptimizer) -> dict[str, Any]:
    spec = run_spec("toy-mlp", steps=2)
    spec = replace(spec, problem=replace(spec.problem, optimizer=optimizer))
    job = Job(side="torch", purpose="run", spec=spec, mode="eager", steps=2, out=str(out))
    trainer = SimpleNamespace(
        ranks=SimpleNamespace(rank=0),
        compiled=None,
        next_step=0,
        export=lambda phases: {"param/w": np.zeros(2, np.float32)},
        facts=lambda: {"parameters": [{"name": "w", "decayed": False, "trainable": True}]},
    )
    observer = SimpleNamespace(activations=[], agreement=lambda: "nothing was observed")
    out.mkdir()
    Manifest(job, trainer, [], {}, observer).write()  # type: ignore[arg-type]
    return json.loads((out / "manifest.json").read_text())


@pytest.mark.parametrize("optimizer", [AdamW(), OwnOptimizer()])
def test_whether_an_own_optimizer_decays_a_parameter_is_not_known(
    tmp_path: Path, optimizer: AdamW | OwnOptimizer
) -> None:
    own, manifest = isinstance(optimizer, OwnOptimizer), written(tmp_path / "pass", optimizer)
    (row,) = manifest["facts"]["parameters"]
    assert row == {"name": "w", "decayed": None if own else False, "trainable": True}
    assert manifest["reasons"].get("facts.parameters.decayed") == (UNKNOWN_DECAY if own else None)
