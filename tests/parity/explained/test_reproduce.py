"""What the script of a reproduction prints, of steps that were made before."""

import json
from pathlib import Path

import numpy as np
import pytest

from parity.explain import reproduce
from spec.data.folder import batch_file
from spec.weights import save_tensors


def test_numbers_are_printed_plainly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = {"phase": "grad", "tensor": "w", "step": 0, "names": {"torch": "w", "jax": "w"}}
    (tmp_path / "first.json").write_text(json.dumps(first))
    for side, value in (("torch", -2.8125), ("jax", 0.5)):
        folder = tmp_path / "made" / side
        (folder / "tensors").mkdir(parents=True)
        save_tensors(batch_file(folder / "tensors", 0), {"grad/w": np.asarray([1.0, value])})
        (folder / "steps.rank0.jsonl").write_text('{"loss": 0.25}\n')
    monkeypatch.setattr(reproduce, "HERE", tmp_path)
    monkeypatch.setattr(reproduce, "read_job", lambda path: path.stem)
    monkeypatch.setattr(reproduce, "_step", lambda side, out: tmp_path / "made" / side)
    assert reproduce.main() == 1
    told = capsys.readouterr().out
    assert "worst at [1]: -2.8125, 0.5" in told and "float64(" not in told
