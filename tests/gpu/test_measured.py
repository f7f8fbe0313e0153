"""A measured run on a GPU: the captured step lies within the floors that its own reruns show."""

from pathlib import Path

import pytest

from tests.parity.test_end_to_end import run

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("precision", ["strict", "tf32", "bf16"])
def test_a_clean_run_agrees(tmp_path: Path, precision: str) -> None:
    words = f"run tiny --devices 1 --steps 20 --precision {precision} --no-time --judge measured"
    numerics = run(tmp_path, words, code=0)["numerics"]
    assert numerics["latent"] == []
    assert numerics["lockstep"]["found"] == {"same": numerics["lockstep"]["compared"]}
